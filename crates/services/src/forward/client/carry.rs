//! One connection: from a listener on this side to the node, or from the node to an address on this
//! side.

use std::time::Duration;

use crate::forward::{
    Address, CarryError, Cause, Failure, MAX_ADDRESS, Socket, carry, carry_accepted, receive_answer,
};
use levada_core::wire::Reason;
use levada_service::streams::{OpenError, Opener, QUEUE, WAIT};
use levada_session::{Class, Stream, StreamError};
use tokio::time::{Instant, sleep, timeout};

use super::{Reporter, socks};

/// How long connecting from this side may take, with the resolution of the name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a retry if the node has no free slot for a stream.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long the node may take to send the source address of a connection.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The message for a stream that is reset with [`Reason::Busy`].
const BUSY: &str = "the session has as many streams as the node allows";

/// Carries a connection that was accepted on this side to `target`, to which the node connects.
pub async fn to(opener: Opener, target: Address, socket: Socket, peer: String, report: Reporter) {
    let carried = if opener.in_use() < QUEUE {
        // Bytes are sent before the node's answer, which saves a round trip.
        match open(&opener, &target).await {
            Ok(stream) => carry(socket, stream, true).await,
            Err(error) => return report.note(&format!("{peer}: {}", describe(&error))),
        }
    } else {
        // As many streams wait for a slot as the node permits. It may refuse this one, and bytes
        // that were already sent would be lost.
        match connect(&opener, &target).await {
            Ok(Ok(stream)) => carry(socket, stream, false).await,
            Ok(Err(failure)) => Err(CarryError::Refused(failure)),
            Err(error) => return report.note(&format!("{peer}: {}", describe(&error))),
        }
    };
    report_failure(&report, &peer, &carried);
}

/// Carries the only connection of a session.
pub async fn one(opener: Opener, target: Address, socket: Socket) -> Result<(), CarryError> {
    match open(&opener, &target).await {
        Ok(stream) => carry(socket, stream, true).await,
        Err(OpenError::Lost(error)) => Err(CarryError::Stream(error)),
        Err(error) => Err(CarryError::Refused(Failure::new(Cause::Busy, error))),
    }
}

/// Opens a stream and waits until the node has connected to `target`; the inner error is the
/// node's. Retries for [`WAIT`] if the node has no free slot.
async fn connect(opener: &Opener, target: &Address) -> Result<Result<Stream, Failure>, OpenError> {
    let end = Instant::now() + WAIT;
    loop {
        let mut stream = open(opener, target).await?;
        match receive_answer(&mut stream).await {
            Ok(answered) => return Ok(answered.map(|()| stream)),
            Err(error) if is_busy(&error) && Instant::now() < end => drop(stream),
            Err(error) => return Err(error.into()),
        }
        sleep(BUSY_PAUSE).await;
    }
}

/// Carries a connection that was accepted on this side to the target in its SOCKS 5 request.
pub async fn by_socks(opener: Opener, mut socket: Socket, peer: String, report: Reporter) {
    let Some(target) = socks::accept(&mut socket).await else {
        return socks::close(socket).await;
    };
    let opened = match connect(&opener, &target).await {
        Ok(answered) => Ok(answered),
        Err(OpenError::Lost(error)) if is_busy(&error) => Ok(Err(Failure::new(Cause::Busy, BUSY))),
        Err(OpenError::Lost(error)) => Err(error),
        Err(error) => Ok(Err(Failure::new(Cause::Busy, error))),
    };
    match opened {
        Ok(Ok(stream)) => {
            if socks::send_success(&mut socket).await {
                report_failure(&report, &peer, &carry(socket, stream, false).await);
            }
        }
        Ok(Err(failure)) => {
            report.note(&format!("{peer}: {}", failure.text));
            socks::send_failure(&mut socket, failure.cause).await;
            socks::close(socket).await;
        }
        // The session has ended.
        Err(_) => {}
    }
}

/// Carries a connection that the node accepted to `target`, to which this side connects.
pub async fn from_node(mut stream: Stream, target: Address, report: Reporter) {
    let from = timeout(SOURCE_TIMEOUT, stream.receive(MAX_ADDRESS)).await;
    let Ok(Ok(Some(from))) = from else { return };
    let from = String::from_utf8_lossy(&from).into_owned();
    let connected = Socket::connect(&target, CONNECT_TIMEOUT).await;
    let connected = connected.map_err(|error| Failure::of(&target, &error));
    report_failure(&report, &from, &carry_accepted(stream, connected).await);
}

/// Opens a stream, and requests that the node connects it to `target`.
pub async fn open(opener: &Opener, target: &Address) -> Result<Stream, OpenError> {
    let mut stream = opener.open_or_wait(Class::Bulk).await?;
    stream.send(target.to_string().as_bytes()).await?;
    Ok(stream)
}

/// Reports why there was no connection. The two ends of the connection see all other failures.
fn report_failure(report: &Reporter, peer: &str, carried: &Result<(), CarryError>) {
    match carried {
        Err(CarryError::Refused(failure)) => {
            report.note(&format!("{peer}: {}", failure.text));
        }
        Err(CarryError::Stream(error)) if is_busy(error) => report.note(&format!("{peer}: {BUSY}")),
        _ => {}
    }
}

/// The message for a stream that could not be opened, or that had no answer.
pub fn describe(error: &OpenError) -> String {
    match error {
        OpenError::Lost(error) if is_busy(error) => BUSY.to_owned(),
        error => error.to_string(),
    }
}

/// Whether the node had no free slot for the stream.
fn is_busy(error: &StreamError) -> bool {
    matches!(error, StreamError::Reset(code) if *code == Reason::Busy as u64)
}
