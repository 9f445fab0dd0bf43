//! Copies data between the socket of xpra and the stream, in both directions and with
//! back-pressure, until either ends.

use std::io;
use std::time::Duration;

use levada_service::stdio::{Chunk, FAILURE_EXIT, Message, MessageReader, StdioError, Tag};
use levada_service::{ServiceError, exit};
use levada_session::{ReceiveHalf, SendHalf, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::exec::program::{Group, Tail};

/// How long xpra may take to exit after one of its directions has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// An xpra process that has connected. Dropping it ends the process.
pub(super) struct Attached {
    pub(super) group: Group,
    pub(super) socket: UnixStream,
    pub(super) tail: Tail,
}

impl Attached {
    /// Runs the session to its end. Dropping the future ends xpra.
    pub(super) async fn run(self, stream: Stream) -> Result<(), ServiceError> {
        let Self { mut group, socket, tail } = self;
        let (mut send, mut receive) = stream.split();
        let (from, to) = socket.into_split();
        let code = select! {
            code = write_input(&mut receive, to) => code?,
            code = send_output(&mut send, from, &mut group) => code?,
        };
        // The windows must be gone from the screen before the client receives the end.
        group.end().await;
        exit(send, receive, code).await?;
        if code == 0 {
            return Ok(());
        }
        let line = tail.last_line();
        Err(ServiceError::Failed(format!("xpra exited with code {code}: {line}")))
    }
}

/// Writes the client's data to xpra. Fails if the client has gone. After the end of the data,
/// returns an exit code if xpra does not exit in time.
async fn write_input(
    receive: &mut ReceiveHalf,
    mut to: OwnedWriteHalf,
) -> Result<u8, ServiceError> {
    let mut inbox = MessageReader::new();
    loop {
        match inbox.next(receive).await? {
            Some(Message::Data(bytes)) => {
                // A failed write means that xpra is exiting: its exit code is the reason.
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
    // Ends the input of xpra.
    drop(to);
    sleep(CLOSE_TIMEOUT).await;
    Ok(FAILURE_EXIT)
}

/// Sends the output of xpra until xpra closes its socket, and returns its exit code. Fails if the
/// stream is lost, also while neither side has data.
async fn send_output(
    send: &mut SendHalf,
    mut from: OwnedReadHalf,
    group: &mut Group,
) -> Result<u8, ServiceError> {
    let mut chunk = Chunk::new(Tag::Data);
    // While xpra accepts no input, `write_input` does not read, and would not detect a lost stream.
    let mut closed = send.closed();
    loop {
        select! {
            read = from.read(chunk.space()) => match read {
                Ok(length @ 1..) => send.send(chunk.message(length)).await?,
                Ok(0) | Err(_) => break,
            },
            error = &mut closed => return Err(error.into()),
        }
    }
    let code = timeout(CLOSE_TIMEOUT, group.code()).await;
    code.unwrap_or(Ok(FAILURE_EXIT)).map_err(exit_code_error)
}

fn exit_code_error(error: io::Error) -> ServiceError {
    ServiceError::Failed(format!("cannot read the exit code of xpra: {error}"))
}
