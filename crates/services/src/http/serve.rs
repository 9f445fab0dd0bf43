//! Answers the requests of one session.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use levada_contexts::{Path, PathSession};
use levada_service::stdio::{Message, MessageReader, StdioError};
use levada_service::{ServiceError, Streams, exit};
use levada_session::{ReceiveHalf, Stream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::body::{self, ChannelBody};
use super::carrier::{PartReceiver, PartSender};
use super::exchange::{self, ExchangeError, Head, Incoming, Rest};
use super::head::{RequestHead, ResponseHead};
use super::layout::Kind;
use super::origin::{Origin, OriginError, OriginPool, own_response};

/// How long a client may take to send a head on a stream that it has opened.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers requests over a session with middleboxes until the client has sent its end.
pub(super) async fn path(
    origin: Origin,
    path: Path,
    session: PathSession,
) -> Result<(), ServiceError> {
    let pool = OriginPool::new(origin);
    match answer_all(&session, &path, &pool).await {
        Ok(()) => Ok(()),
        Err(ExchangeError::Path(error)) => Err(error.into()),
        Err(other) => {
            let _ = session.abort(other.to_string().as_bytes());
            Err(ServiceError::Failed(other.to_string()))
        }
    }
}

async fn answer_all(
    session: &PathSession,
    path: &Path,
    pool: &OriginPool,
) -> Result<(), ExchangeError> {
    loop {
        let receiver = PartReceiver::path(session, path, Kind::Request)?;
        let Some((head, incoming)) = exchange::receive(receiver, &mut false).await? else { break };
        let sender = PartSender::path(session, path, Kind::Response)?;
        tokio::select! {
            answered = answer(sender, &head, incoming, pool) => answered?,
            // The origin may take long to find out that nothing is wanted any more.
            () = session.failed() => return Err(ExchangeError::Ended(String::new())),
        }
    }
    session.close()?;
    session.flushed().await;
    Ok(())
}

/// Answers the requests of an ordinary session, each on its own stream, until the client ends the
/// session.
pub(super) async fn streams(
    origin: Origin,
    mut streams: Streams,
    stream: Stream,
) -> Result<(), ServiceError> {
    let (send, mut receive) = stream.split();
    let pool = Arc::new(OriginPool::new(origin));
    // Dropping the set aborts its tasks, which resets their streams.
    let mut exchanges = JoinSet::new();
    let mut control = MessageReader::new();
    loop {
        tokio::select! {
            ended = client_end(&mut control, &mut receive) => break ended?,
            stream = streams.accept() => {
                exchanges.spawn(answer_stream(pool.clone(), stream));
            }
            Some(_) = exchanges.join_next() => {}
        }
    }
    drop((streams, exchanges));
    Ok(exit(send, receive, 0).await?)
}

/// Waits for the client's end on the session's first stream.
async fn client_end(
    control: &mut MessageReader,
    receive: &mut ReceiveHalf,
) -> Result<(), ServiceError> {
    loop {
        match control.next(receive).await? {
            Some(Message::End) => return Ok(()),
            // Text that was typed into `levada connect`, and new sizes of its terminal.
            Some(Message::Data(_) | Message::Window(_)) => {}
            Some(_) => return Err(StdioError::Direction.into()),
            None => return Err(ServiceError::Gone),
        }
    }
}

/// Serves the one exchange of a stream. A failure resets the stream, and affects no other exchange.
async fn answer_stream(pool: Arc<OriginPool>, stream: Stream) {
    let (mut send, mut receive) = stream.split();
    let closed = send.closed();
    let exchange = async {
        let receiver = PartReceiver::stream(&mut receive);
        let received = timeout(HEAD_TIMEOUT, exchange::receive(receiver, &mut false)).await;
        let late = || ExchangeError::Ended(" without a request".to_owned());
        let Some((head, incoming)) = received.map_err(|_| late())?? else { return Ok(()) };
        answer(PartSender::Stream(&mut send), &head, incoming, &pool).await?;
        exchange::wait_for_end(&mut receive).await;
        Ok(())
    };
    let ended: Result<(), ExchangeError> = tokio::select! {
        ended = exchange => ended,
        error = closed => Err(error.into()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an exchange failed");
    }
}

/// Answers one request. Its body may end after its answer.
async fn answer(
    mut sender: PartSender<'_>,
    head: &[u8],
    incoming: Incoming<'_>,
    pool: &OriginPool,
) -> Result<(), ExchangeError> {
    let head = RequestHead::decode(head)?;
    let names = incoming.trailer_names()?;
    let trailers = sender.layout().trailers.then_some(names.as_slice());
    let (to_origin, body) = if incoming.is_over() {
        (None, ChannelBody::empty())
    } else {
        let (sender, body) = body::channel();
        (Some(sender), body)
    };
    let mut connection = pool.connection();
    let answer = async {
        match connection.send(head, body, trailers).await {
            Ok((head, body)) => exchange::send(&mut sender, head_of(head), body).await,
            Err(error) => refuse(&mut sender, &error).await,
        }
    };
    let pass = async {
        match to_origin {
            Some(to) => incoming.pass_body(to, Rest::Any).await,
            None => Ok(()),
        }
    };
    tokio::try_join!(answer, pass)?;
    connection.keep();
    Ok(())
}

fn head_of(head: ResponseHead) -> Head {
    Head { line: head.line(), fields: head.fields }
}

/// Tells the client that the origin did not answer.
async fn refuse(sender: &mut PartSender<'_>, error: &OriginError) -> Result<(), ExchangeError> {
    let (parts, text) = own_response(StatusCode::BAD_GATEWAY, &error.to_string()).into_parts();
    let head = ResponseHead { status: parts.status, fields: parts.headers };
    exchange::send(sender, head_of(head), text).await
}
