//! Copies bytes between a socket and a stream in both directions, until both have ended: each side
//! of a TCP connection sees the same events as without the stream.
//!
//! Each direction ends separately (half-close). The reset of a socket is sent as a message after
//! the bytes that preceded it: a reset of the stream would overtake them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::message::{CONNECTED, Failure, RESET, receive_answer_on};
use super::socket::{Connected, Socket};

/// The first size of the buffer for reads from a socket, in bytes.
const FIRST_READ: usize = 16 * 1024;
/// Its largest size: it grows for sockets that fill it. A connection needs this memory at each end,
/// beside the window of its stream.
const LARGEST_READ: usize = 256 * 1024;
/// How long the peer may take to receive the end of a connection, before the stream is reset.
const LINGER: Duration = Duration::from_secs(5);

/// Why a connection did not end in good order.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CarryError {
    /// The accepting side made no connection.
    #[error("{0}")]
    Refused(Failure),
    /// The socket at this side was reset or failed, which the other side received after its bytes.
    #[error("the connection was reset")]
    LocalReset,
    /// The socket at this side failed after the end of its data.
    #[error("the connection was reset after its end")]
    LateReset,
    /// The socket at the other side was reset.
    #[error("the connection was reset at the other side")]
    RemoteReset,
    /// The stream ended early, or carried an invalid message.
    #[error("{0}")]
    Stream(#[from] StreamError),
}

/// Answers a stream that the peer has opened, and carries the requested connection if it was made.
///
/// # Errors
/// [`CarryError`]: why there is no connection, or why it was cut.
pub async fn carry_accepted(
    mut stream: Stream,
    connected: Result<Socket, Failure>,
) -> Result<(), CarryError> {
    let failure = match connected {
        Ok(socket) => {
            stream.send(CONNECTED).await?;
            return carry(socket, stream, false).await;
        }
        Err(failure) => failure,
    };
    stream.send(&failure.encode()).await?;
    stream.finish().await?;
    let (_send, mut receive) = stream.split();
    linger(&mut receive).await;
    Err(CarryError::Refused(failure))
}

/// Carries a connection until it has ended. With `expect_answer`, this side has opened the stream,
/// and the answer has yet to come: bytes are sent before it, which saves a round trip. In good
/// order both sockets see an end; if the connection is cut, both see a reset.
///
/// # Errors
/// [`CarryError`]: why it was cut.
pub async fn carry(
    mut socket: Socket,
    stream: Stream,
    expect_answer: bool,
) -> Result<(), CarryError> {
    let (mut send, mut receive) = stream.split();
    let carried = match &mut socket.stream {
        Connected::Tcp(stream) => {
            let (read, write) = stream.split();
            both(read, write, &mut send, &mut receive, expect_answer).await
        }
        Connected::Unix(stream) => {
            let (read, write) = stream.split();
            both(read, write, &mut send, &mut receive, expect_answer).await
        }
    };
    match carried {
        Ok(()) => socket.end(),
        // Resets the socket, before the wait below.
        Err(_) => drop(socket),
    }
    if carried == Err(CarryError::LocalReset) {
        linger(&mut receive).await;
    }
    carried
}

/// Waits until the peer ends the stream: dropping it earlier would reset it, and a reset overtakes
/// the last message.
async fn linger(receive: &mut ReceiveHalf) {
    let rest = async {
        while let Ok(Some(_)) = receive.peek().await {
            receive.consume(usize::MAX);
        }
    };
    let _ = timeout(LINGER, rest).await;
}

/// The state that both directions share.
#[derive(Default)]
struct Shared {
    /// A write to the socket failed.
    write_failed: AtomicBool,
    /// The end of the socket's data is being sent, or was.
    ended: AtomicBool,
    /// Notified once the end was sent.
    finished: Notify,
}

async fn both(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    send: &mut SendHalf,
    receive: &mut ReceiveHalf,
    expect_answer: bool,
) -> Result<(), CarryError> {
    let shared = Shared::default();
    let out = async {
        let read = copy_out(&mut read, send).await?;
        let failed = read.is_err() || shared.write_failed.load(Ordering::Relaxed);
        shared.ended.store(true, Ordering::Relaxed);
        if failed {
            send.send(RESET).await?;
        }
        send.finish().await?;
        shared.finished.notify_one();
        if failed { Err(CarryError::LocalReset) } else { Ok(()) }
    };
    let back = async {
        if expect_answer {
            receive_answer_on(receive).await?.map_err(CarryError::Refused)?;
        }
        match copy_back(receive, &mut write).await? {
            Ok(()) => wait_for_finish(receive, &shared).await,
            Err(_) => report_write_failure(&shared).await,
        }
    };
    tokio::try_join!(out, back).map(drop)
}

/// Waits until the other direction has ended, or the stream is reset: nothing more is read from the
/// stream, and while the socket sends nothing, no write would detect its end.
async fn wait_for_finish(receive: &ReceiveHalf, shared: &Shared) -> Result<(), CarryError> {
    tokio::select! {
        // In this order: a connection that ends after the last message is not an error.
        biased;
        () = shared.finished.notified() => Ok(()),
        reason = receive.closed() => Err(reason.into()),
    }
}

/// The socket accepts no more bytes. Unless the end of its data was already sent, the other
/// direction sends it as a reset, after all bytes that it still reads from the socket.
async fn report_write_failure(shared: &Shared) -> Result<(), CarryError> {
    shared.write_failed.store(true, Ordering::Relaxed);
    if shared.ended.load(Ordering::Relaxed) {
        return Err(CarryError::LateReset);
    }
    std::future::pending().await
}

/// Sends the socket's bytes as one message, until their end: the inner result is an error of the
/// socket.
async fn copy_out(
    read: &mut (impl AsyncRead + Unpin),
    send: &mut SendHalf,
) -> Result<io::Result<()>, StreamError> {
    let mut buffer = vec![0; FIRST_READ];
    loop {
        let length = match read.read(&mut buffer).await {
            Ok(0) => {
                send.send(b"").await?;
                return Ok(Ok(()));
            }
            Ok(length) => length,
            Err(error) => {
                send.send(b"").await?;
                return Ok(Err(error));
            }
        };
        send.write(&buffer[..length], false).await?;
        if length == buffer.len() && length < LARGEST_READ {
            buffer = vec![0; LARGEST_READ.min(length * 4)];
        }
    }
}

/// Writes the received bytes to the socket, until their end: the inner result is an error of the
/// socket.
async fn copy_back(
    receive: &mut ReceiveHalf,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<io::Result<()>, CarryError> {
    let mut closed = receive.closed();
    loop {
        let Some((bytes, end)) = receive.peek().await? else { return Err(malformed()) };
        let available = bytes.len();
        let mut length = 0;
        if available > 0 {
            let written = tokio::select! {
                biased;
                written = write.write(bytes) => written,
                // While the socket accepts nothing, no read detects the end of the stream.
                reason = &mut closed => return Err(reason.into()),
            };
            match written {
                Ok(0) => return Ok(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => length = written,
                Err(error) => return Ok(Err(error)),
            }
        }
        receive.consume(length);
        if end && length == available {
            break;
        }
    }
    match receive.receive(RESET.len()).await?.as_deref() {
        None => Ok(write.shutdown().await),
        Some(RESET) => Err(CarryError::RemoteReset),
        Some(_) => Err(malformed()),
    }
}

fn malformed() -> CarryError {
    CarryError::Stream(StreamError::Finished)
}
