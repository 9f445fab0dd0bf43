//! Carries what xpra says and hears between its socket and the stream, both ways at once and with
//! back-pressure, until one of the two ends.

use std::io;
use std::time::Duration;

use levada_service::stdio::{Chunk, FAILURE_EXIT, Inbox, Message, StdioError, Tag};
use levada_service::{ServiceError, exit};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Attached;
use crate::exec::program::Group;

/// How long xpra may take to end once one of its directions has.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often the stream is looked at: while xpra takes nothing, nothing is read from the stream, and
/// nobody would notice that the client went away.
const PULSE: Duration = Duration::from_secs(1);

/// Runs the session to its end. Everything happens in this one future: when it is dropped, xpra ends
/// with it.
pub(super) async fn run(attached: Attached, stream: Stream) -> Result<(), ServiceError> {
    let Attached { mut group, socket, tail } = attached;
    let (mut send, mut receive) = stream.split();
    let (from, to) = socket.into_split();
    let code = select! {
        ended = feed(&mut receive, to) => ended?,
        code = drain(&mut send, from, &mut group) => code?,
    };
    // Before the client hears of the end, nothing of it is left on the screen.
    group.end().await;
    exit(send, receive, code).await?;
    if code == 0 {
        return Ok(());
    }
    Err(ServiceError::Failed(format!("xpra ended with {code}: {}", tail.last_line())))
}

/// Gives xpra what the client sends. Fails once the client has gone; otherwise ends with an exit code if
/// xpra does not end although nothing more comes.
async fn feed(receive: &mut ReceiveHalf, mut to: OwnedWriteHalf) -> Result<u8, ServiceError> {
    let mut inbox = Inbox::new();
    loop {
        match inbox.next(receive).await? {
            Some(Message::Data(bytes)) => {
                // That xpra takes nothing more is for its exit code to explain.
                if to.write_all(bytes).await.is_err() {
                    break;
                }
            }
            Some(Message::Window(_)) => {}
            Some(Message::End) => break,
            Some(_) => return Err(StdioError::Direction.into()),
            None => return Err(ServiceError::Gone),
        }
    }
    // xpra sees that nothing more comes.
    drop(to);
    sleep(FAREWELL).await;
    Ok(FAILURE_EXIT)
}

/// Sends what xpra says until it has ended: gives its exit code.
async fn drain(
    send: &mut SendHalf,
    mut from: OwnedReadHalf,
    group: &mut Group,
) -> Result<u8, ServiceError> {
    let mut chunk = Chunk::new(Tag::Data);
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        select! {
            read = from.read(chunk.space()) => match read {
                Ok(length @ 1..) => send.send(chunk.message(length)).await?,
                Ok(0) | Err(_) => break,
            },
            // An empty part sends nothing, and fails if the stream has ended.
            _ = pulse.tick() => send.write(b"", false).await?,
        }
    }
    // The connection is over: whatever xpra still does, it shows nothing more.
    let code = timeout(FAREWELL, group.code()).await;
    code.unwrap_or(Ok(FAILURE_EXIT)).map_err(lost)
}

fn lost(error: io::Error) -> ServiceError {
    ServiceError::Failed(format!("xpra's exit code is lost: {error}"))
}
