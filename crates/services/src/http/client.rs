//! The client's side of `http`: a local origin that any browser can use.

mod call;
mod connections;
mod report;
mod sessions;
mod site;
mod stream_session;
mod waits;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming as RequestBody;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_client::ClientError;
use levada_contexts::{ContextError, PathError};
use levada_core::wire::Reason;
use levada_session::StreamError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::carrier::{PartReceiver, PartSender};
use super::exchange::{self, ExchangeError};
use super::origin::own_response;
use crate::forward::Listener;
use call::{Call, LocalBody};
use connections::{BusyBody, Connections};
pub use report::{GrantedMiddlebox, Report, SessionEvent};
use sessions::{Exchange, Sessions, UsedPath};
pub use sessions::{Open, Route};
use site::is_forged;
pub use site::site;
pub(super) use waits::ClientWaits;

/// How long a local client may take to send a head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The code of the ALERT of a party whose policy refuses something.
const REFUSED: u8 = 2;
/// The pause after an accept that failed, for example for lack of files.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How the local origin presents itself to its clients.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// The host name of the service on this machine, as [`site`] makes it.
    pub site: Option<String>,
    /// The names of the middleboxes, the first next to this side, for the reasons of refusals.
    pub middleboxes: Vec<String>,
}

/// What the local origin needs.
pub struct Local {
    /// The values of Host that name this origin.
    hosts: Vec<String>,
    options: LocalOptions,
    sessions: Sessions,
    connections: Connections,
}

impl Local {
    /// The local origin at `listener`, whose requests travel over sessions of `route`. It opens the
    /// first one, which shows whether every party allows it.
    ///
    /// # Errors
    /// Those of the first session.
    pub async fn new(
        listener: &Listener,
        options: LocalOptions,
        route: Route,
        report: Report,
    ) -> Result<Arc<Self>, ClientError> {
        let hosts = hosts(listener, options.site.as_deref()).map_err(ClientError::local)?;
        let sessions = Sessions::new(route, report);
        sessions.open_first().await?;
        Ok(Arc::new(Self { hosts, options, sessions, connections: Connections::new() }))
    }

    /// The value of Host that is shown to people.
    pub fn host(&self) -> &str {
        &self.hosts[0]
    }

    /// Serves connections; never returns.
    pub async fn serve(self: Arc<Self>, listener: Listener) {
        loop {
            let permit = self.connections.room().await;
            let local = self.clone();
            match &listener {
                Listener::Tcp(listener) => match listener.accept().await {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        tokio::spawn(async move {
                            local.serve_connection(stream).await;
                            drop(permit);
                        });
                    }
                    Err(_) => sleep(RETRY_PAUSE).await,
                },
                Listener::Unix(listener, _) => match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(async move {
                            local.serve_connection(stream).await;
                            drop(permit);
                        });
                    }
                    Err(_) => sleep(RETRY_PAUSE).await,
                },
            }
        }
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) {
        let (idle, evictions) = self.connections.add();
        let answer = service_fn(|request| {
            let local = self.clone();
            let busy = idle.pause();
            async move {
                let response = local.answer(request).await;
                Ok::<_, Infallible>(response.map(|body| BusyBody { body, _busy: busy }))
            }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        tokio::select! {
            // A failure affects only this client, which has gone.
            _ = server.serve_connection(TokioIo::new(stream), answer) => {}
            () = evictions.wait() => {}
        }
    }

    async fn answer(self: Arc<Self>, request: Request<RequestBody>) -> Response<LocalBody> {
        let refused = self.refusal(&request);
        // The field may have stood behind a bare LF, which hyper takes for the end of a line.
        // Another server on the way may not, and then the two disagree about what follows: request
        // smuggling (RFC 9112 sections 2.2 and 6.1).
        let has_body = request.headers().contains_key(header::TRANSFER_ENCODING)
            || request.headers().get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
        let last = refused.is_some() || has_body;
        let mut response = match refused {
            Some(refused) => refused.map(Either::Right),
            None => self.exchange(request).await,
        };
        if last {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// What this origin does not do: it answers to no other name, so that no page of another origin
    /// can reach it by a name that leads to this address (DNS rebinding); and it is no proxy.
    fn refusal(&self, request: &Request<RequestBody>) -> Option<Response<String>> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let own = self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        if !own || hosts.next().is_some() {
            let text = format!("this is {}, and not what the field Host names", self.hosts[0]);
            return Some(own_response(StatusCode::MISDIRECTED_REQUEST, &text));
        }
        if is_forged(request, host) {
            let text = format!("a page of another site may only read from {}", self.hosts[0]);
            return Some(own_response(StatusCode::FORBIDDEN, &text));
        }
        if request.method() == Method::CONNECT || request.uri().authority().is_some() {
            return Some(own_response(StatusCode::BAD_REQUEST, "this is no proxy"));
        }
        let mut codings = request.headers().get_all(header::TRANSFER_ENCODING).iter();
        let known =
            codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !known || codings.next().is_some() {
            let text = "the only transfer coding here is chunked";
            return Some(own_response(StatusCode::NOT_IMPLEMENTED, text));
        }
        if request.headers().contains_key(header::UPGRADE) {
            let text = "connections cannot be upgraded here, so WebSockets do not work";
            return Some(own_response(StatusCode::NOT_IMPLEMENTED, text));
        }
        None
    }

    async fn exchange(self: Arc<Self>, request: Request<RequestBody>) -> Response<LocalBody> {
        let (respond, response) = oneshot::channel();
        let call = Call::new(request, respond);
        // A task of its own: a session must get to the end of the exchange also if the local client
        // goes away.
        tokio::spawn(async move { self.run(call).await });
        let cut_off = || bad_gateway("the exchange was cut off").map(Either::Right);
        response.await.unwrap_or_else(|_| cut_off())
    }

    /// Runs one exchange.
    async fn run(&self, mut call: Call) {
        match self.sessions.exchange().await {
            Ok(Exchange::Path(used, permit)) => {
                self.run_over_path(used, call).await;
                drop(permit);
            }
            Ok(Exchange::Stream(mut send, mut receive, permit)) => {
                let sender = PartSender::Stream(&mut send);
                let receiver = PartReceiver::stream(&mut receive);
                let waits = call.waits();
                let ended = tokio::select! {
                    ended = call.converse(sender, receiver) => ended,
                    () = waits.exceeded(|| self.sessions.is_crowded()) => Err(ExchangeError::TooSlow),
                };
                match ended {
                    Ok(()) => exchange::wait_for_end(&mut receive).await,
                    Err(ExchangeError::TooSlow) => call.fail(too_slow()),
                    Err(error) => {
                        tracing::debug!(%error, "an exchange failed");
                        call.fail(bad_gateway(&describe(&error)));
                    }
                }
                drop(permit);
            }
            Err(error) => call.fail(bad_gateway(&error.to_string())),
        }
    }

    /// A kept session may end just when it is used again. A request that may be repeated is then
    /// made once more, over a new one.
    async fn run_over_path(&self, mut used: UsedPath, mut call: Call) {
        loop {
            let waits = call.waits();
            let ended = tokio::select! {
                ended = call.converse_over(&used.session) => ended,
                () = waits.exceeded(|| self.sessions.is_crowded()) => Err(ExchangeError::TooSlow),
            };
            let Err(error) = ended else { return self.sessions.keep(used) };
            let refused = self.refused_by(&error);
            let again = used.kept && refused.is_none() && call.may_repeat(&error);
            self.sessions.failed(used, error.to_string());
            if !again {
                return call.fail(refused.unwrap_or_else(|| bad_gateway(&describe(&error))));
            }
            used = match self.sessions.new_path().await {
                Ok(used) => used,
                Err(error) => return call.fail(bad_gateway(&error.to_string())),
            };
        }
    }

    /// Returns the response to a request whose client was too slow, or that a middlebox has refused
    /// by its policy.
    fn refused_by(&self, error: &ExchangeError) -> Option<Response<String>> {
        if matches!(error, ExchangeError::TooSlow) {
            return Some(too_slow());
        }
        let ExchangeError::Path(PathError::Context(ContextError::Alert { code: REFUSED, hop })) =
            error
        else {
            return None;
        };
        let name = self.options.middleboxes.get(usize::from(*hop).checked_sub(1)?)?;
        let text = format!("the middlebox {name} ({hop}) refuses this request");
        Some(own_response(StatusCode::FORBIDDEN, &text))
    }

    /// Ends the sessions.
    pub async fn close(&self) {
        self.sessions.close().await;
    }
}

fn too_slow() -> Response<String> {
    own_response(StatusCode::REQUEST_TIMEOUT, &ExchangeError::TooSlow.to_string())
}

fn bad_gateway(text: &str) -> Response<String> {
    own_response(StatusCode::BAD_GATEWAY, text)
}

/// The values of Host that name the origin at `listener`: first that of its site, if it can be
/// reached there.
fn hosts(listener: &Listener, site: Option<&str>) -> io::Result<Vec<String>> {
    let Listener::Tcp(listener) = listener else { return Ok(vec!["localhost".to_owned()]) };
    let address = listener.local_addr()?;
    let port = address.port();
    let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
    if port == 80 {
        let ip = match address.ip() {
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
            std::net::IpAddr::V4(ip) => ip.to_string(),
        };
        hosts.extend([ip, "localhost".to_owned()]);
    }
    if let Some(site) = site {
        let at = if address.ip().is_loopback() { 0 } else { hosts.len() };
        hosts.insert(at, format!("{site}:{port}"));
        hosts.extend((port == 80).then(|| site.to_owned()));
    }
    Ok(hosts)
}

/// The text for the local client.
fn describe(error: &ExchangeError) -> String {
    match error {
        ExchangeError::Stream(StreamError::Reset(code)) if *code == Reason::Busy as u64 => {
            "the session has as many streams as the node allows; try again".to_owned()
        }
        ExchangeError::Stream(StreamError::Reset(_)) => {
            "the node has ended the exchange: the origin broke off, or sent what HTTP does not allow".to_owned()
        }
        error => error.to_string(),
    }
}
