//! One request of a local client, and its response.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Either;
use hyper::body::{Body, Bytes, Frame, Incoming as RequestBody, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use levada_contexts::PathSession;
use tokio::sync::oneshot;

use super::waits::ClientWaits;
use crate::http::body::{self, ChannelBody};
use crate::http::carrier::{PartReceiver, PartSender};
use crate::http::exchange::{self, ExchangeError, Head, Incoming, Rest};
use crate::http::head::{RequestHead, ResponseHead};
use crate::http::layout::Kind;

/// A response of the origin, or one that this side made.
pub(super) type LocalBody = Either<ChannelBody, String>;

/// Where the response goes.
pub(super) type Respond = oneshot::Sender<Response<LocalBody>>;

/// A request, and where its response goes.
pub(super) struct Call {
    head: RequestHead,
    body: UntouchedBody,
    waits: ClientWaits,
    /// None when the response has begun.
    respond: Option<Respond>,
    /// A byte of the response has come.
    answered: bool,
}

impl Call {
    pub(super) fn new(request: Request<RequestBody>, respond: Respond) -> Self {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(header::HOST);
        let head = RequestHead { method: parts.method, target: parts.uri, fields: parts.headers };
        let waits = ClientWaits::default();
        let body = UntouchedBody { body, touched: false, waits: waits.clone() };
        Self { head, body, waits, respond: Some(respond), answered: false }
    }

    /// How long the exchange waits for the local client.
    pub(super) fn waits(&self) -> ClientWaits {
        self.waits.clone()
    }

    /// Sends the request over a session with middleboxes, and passes its response on while it
    /// arrives.
    pub(super) async fn converse_over(
        &mut self,
        session: &PathSession,
    ) -> Result<(), ExchangeError> {
        let path = session.path().ok_or(ExchangeError::Ended(String::new()))?;
        let sender = PartSender::path(session, &path, Kind::Request)?;
        let receiver = PartReceiver::path(session, &path, Kind::Response)?;
        self.converse(sender, receiver).await
    }

    /// Sends the request, and passes its response on while it arrives.
    pub(super) async fn converse(
        &mut self,
        mut sender: PartSender<'_>,
        receiver: PartReceiver<'_>,
    ) -> Result<(), ExchangeError> {
        let Self { head, body, waits, respond, answered } = self;
        let first = Head { line: head.line(), fields: head.fields.clone() };
        let receive = async {
            let received = tokio::select! {
                received = exchange::receive(receiver, answered) => received?,
                () = abandoned(respond) => return Err(ExchangeError::Abandoned),
            };
            let (response, incoming) =
                received.ok_or(ExchangeError::Ended(" before its answer".to_owned()))?;
            pass_response(&response, incoming, &head.method, (respond, waits)).await
        };
        tokio::try_join!(exchange::send(&mut sender, first, body), receive).map(drop)
    }

    /// Whether the request may be made once more after a session has ended: it is idempotent (RFC
    /// 9110 section 9.2.2), nothing of its body is gone, and nothing of an answer has come.
    pub(super) fn may_repeat(&self, error: &ExchangeError) -> bool {
        let ended = matches!(error, ExchangeError::Path(_) | ExchangeError::Ended(_));
        ended && !self.answered && !self.body.touched && self.head.method.is_idempotent()
    }

    /// Gives the local client a response of this side, unless that of the origin has begun.
    pub(super) fn fail(&mut self, response: Response<String>) {
        if let Some(respond) = self.respond.take() {
            let _ = respond.send(response.map(Either::Right));
        }
    }
}

/// Waits until the local client has left, and a little longer for an answer that comes soon, so
/// that the session can be used again. Without a limit, requests that an origin never answers would
/// hold every session.
async fn abandoned(respond: &mut Option<Respond>) {
    match respond {
        Some(respond) => respond.closed().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(exchange::DISCARD_TIMEOUT).await;
}

/// A body that remembers whether anything was asked of it, and how long that took.
struct UntouchedBody {
    body: RequestBody,
    touched: bool,
    waits: ClientWaits,
}

impl Body for UntouchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.touched = true;
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Pending => self.waits.wait(),
            Poll::Ready(frame) => {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                self.waits.advance(data.map_or(0, Bytes::len));
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Passes a response on while it arrives.
async fn pass_response(
    head: &[u8],
    incoming: Incoming<'_>,
    method: &Method,
    (respond, waits): (&mut Option<Respond>, &ClientWaits),
) -> Result<(), ExchangeError> {
    let mut head = ResponseHead::decode(head)?;
    let bodiless = *method == Method::HEAD
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless && !incoming.is_over() {
        return Err(ExchangeError::UnexpectedBody);
    }
    let names = incoming.trailer_names()?;
    if let (false, Ok(names)) = (names.is_empty(), HeaderValue::from_bytes(&names)) {
        head.fields.insert(header::TRAILER, names);
    }
    let (to, body) = body::channel();
    let body = if incoming.is_over() { ChannelBody::empty() } else { body };
    let mut response = Response::new(Either::Left(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.fields;
    if let Some(respond) = respond.take() {
        let _ = respond.send(response);
    }
    if incoming.is_over() {
        return Ok(());
    }
    incoming.pass_body(to.with_waits(waits.clone()), Rest::Short).await
}
