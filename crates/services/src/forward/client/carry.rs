//! One connection: from a door here to the node, or from the node to an address here.

use std::time::Duration;

use crate::forward::{
    Address, CarryError, Cause, Failure, MAX_ADDRESS, Socket, carry, carry_accepted, receive_answer,
};
use levada_core::wire::Reason;
use levada_service::streams::{OpenError, Opener, QUEUE, WAIT};
use levada_session::{Class, Stream, StreamError};
use tokio::time::{Instant, sleep, timeout};

use super::{Reporter, socks};

/// How long connecting from this side may take, the name of the target included.
const CONNECT: Duration = Duration::from_secs(10);
/// A node that has no place for a stream is asked again after so long.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the node may take to say where a connection comes from.
const FIRST: Duration = Duration::from_secs(10);

/// What a stream that is reset with [`Reason::Busy`] means.
const BUSY: &str = "the session has as many streams as the node allows";

/// Carries a connection that came in here to `target`, which the node connects to.
pub async fn to(opener: Opener, target: Address, socket: Socket, peer: String, report: Reporter) {
    let carried = if opener.in_use() < QUEUE {
        // Bytes leave before the answer is there. What ended it before is for its two ends to see.
        match ask(&opener, &target).await {
            Ok(stream) => carry(socket, stream, true).await,
            Err(error) => return report.note(&format!("{peer}: {}", why(&error))),
        }
    } else {
        // The node lets so many wait for a place. It may refuse this one, and bytes that were sent would be lost.
        match connect(&opener, &target).await {
            Ok(Ok(stream)) => carry(socket, stream, false).await,
            Ok(Err(failure)) => Err(CarryError::Refused(failure)),
            Err(error) => return report.note(&format!("{peer}: {}", why(&error))),
        }
    };
    said(&report, &peer, &carried);
}

/// Carries one connection by itself.
pub async fn one(opener: Opener, target: Address, socket: Socket) -> Result<(), CarryError> {
    match ask(&opener, &target).await {
        Ok(stream) => carry(socket, stream, true).await,
        Err(OpenError::Lost(error)) => Err(CarryError::Stream(error)),
        Err(error) => Err(CarryError::Refused(Failure::new(Cause::Busy, error))),
    }
}

/// A stream whose connection the node has made, or why it could not. A node that has no place for the stream is asked again
/// for a while.
async fn connect(opener: &Opener, target: &Address) -> Result<Result<Stream, Failure>, OpenError> {
    let end = Instant::now() + WAIT;
    loop {
        let mut stream = ask(opener, target).await?;
        match receive_answer(&mut stream).await {
            Ok(answered) => return Ok(answered.map(|()| stream)),
            Err(error) if is_busy(&error) && Instant::now() < end => drop(stream),
            Err(error) => return Err(error.into()),
        }
        sleep(AGAIN).await;
    }
}

/// Carries a connection that came in here to where it says by SOCKS 5.
pub async fn by_socks(opener: Opener, mut socket: Socket, peer: String, report: Reporter) {
    let Some(target) = socks::ask(&mut socket).await else { return socks::farewell(socket).await };
    let opened = match connect(&opener, &target).await {
        Ok(answered) => Ok(answered),
        Err(OpenError::Lost(error)) if is_busy(&error) => Ok(Err(Failure::new(Cause::Busy, BUSY))),
        Err(OpenError::Lost(error)) => Err(error),
        Err(error) => Ok(Err(Failure::new(Cause::Busy, error))),
    };
    match opened {
        Ok(Ok(stream)) => {
            if socks::connected(&mut socket).await {
                said(&report, &peer, &carry(socket, stream, false).await);
            }
        }
        Ok(Err(failure)) => {
            report.note(&format!("{peer}: {}", failure.text));
            socks::refuse(&mut socket, failure.cause).await;
            socks::farewell(socket).await;
        }
        // The session has ended: so has this.
        Err(_) => {}
    }
}

/// Carries a connection that came to the node to `target`, which this side connects to.
pub async fn from_node(mut stream: Stream, target: Address, report: Reporter) {
    let from = timeout(FIRST, stream.receive(MAX_ADDRESS)).await;
    let Ok(Ok(Some(from))) = from else { return };
    let from = String::from_utf8_lossy(&from).into_owned();
    let connected = Socket::connect(&target, CONNECT).await;
    let connected = connected.map_err(|error| Failure::of(&target, &error));
    said(&report, &from, &carry_accepted(stream, connected).await);
}

/// A stream on which the node was asked to connect to `target`.
pub async fn ask(opener: &Opener, target: &Address) -> Result<Stream, OpenError> {
    let mut stream = opener.open_or_wait(Class::Bulk).await?;
    stream.send(target.to_string().as_bytes()).await?;
    Ok(stream)
}

/// Says why there was no connection. All else its two ends have seen.
fn said(report: &Reporter, peer: &str, carried: &Result<(), CarryError>) {
    match carried {
        Err(CarryError::Refused(failure)) => {
            report.note(&format!("{peer}: {}", failure.text));
        }
        Err(CarryError::Stream(error)) if is_busy(error) => report.note(&format!("{peer}: {BUSY}")),
        _ => {}
    }
}

/// Why a stream could not be had, or why nothing was said on it.
pub fn why(error: &OpenError) -> String {
    match error {
        OpenError::Lost(error) if is_busy(error) => BUSY.to_owned(),
        error => error.to_string(),
    }
}

/// Whether the node took no more streams.
fn is_busy(error: &StreamError) -> bool {
    matches!(error, StreamError::Reset(code) if *code == Reason::Busy as u64)
}
