//! Moves bytes between a socket and a stream, both ways at once, until both directions have ended: what one side
//! of a TCP connection would see of the other, it sees through the stream.
//!
//! Each direction ends by itself (half-close). A socket that was reset is told by a message of its own behind the
//! bytes that came before: a reset of the stream would overtake them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::message::{CONNECTED, Failure, RESET, answer_to};
use super::socket::{Connected, Socket};

/// Bytes asked of a socket at once, at first…
const FIRST_READ: usize = 16 * 1024;
/// …and at most: it grows for sockets that fill it. This is what a connection holds at each end, beside what its
/// stream's window allows.
const LARGEST_READ: usize = 256 * 1024;
/// How often somebody who waits for a socket looks whether the stream is still there.
const PULSE: Duration = Duration::from_secs(1);
/// How long the peer may take to learn how a connection ended, before the stream is cut off.
const LINGER: Duration = Duration::from_secs(5);

/// Why a connection did not end in good order.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Cut {
    /// There never was one at the accepting side.
    #[error("{0}")]
    Refused(Failure),
    /// The socket at this side was reset or broke, and the other side was told behind all that came from it.
    #[error("the connection was reset")]
    Here,
    /// The socket at this side broke after the end of its data.
    #[error("the connection was reset after its end")]
    Late,
    /// The socket at the other side was reset.
    #[error("the connection was reset at the other side")]
    There,
    /// The stream was given up, or what came on it makes no sense.
    #[error("{0}")]
    Lost(#[from] StreamError),
}

/// Answers a stream that the peer has opened, and carries the connection that it asked for, if there is one.
///
/// # Errors
/// [`Cut`] says why there is none, or why it was cut.
pub async fn carry_accepted(
    mut stream: Stream,
    connected: Result<Socket, Failure>,
) -> Result<(), Cut> {
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
    Err(Cut::Refused(failure))
}

/// Carries a connection until it has ended. With `asked`, this side has opened the stream, and the answer is still to
/// come: bytes go out before it, so that nobody waits for a round trip. In good order both sockets see ends; if it is
/// cut, they see resets.
///
/// # Errors
/// [`Cut`] says why it was cut.
pub async fn carry(mut socket: Socket, stream: Stream, asked: bool) -> Result<(), Cut> {
    let (mut send, mut receive) = stream.split();
    let carried = match &mut socket.stream {
        Connected::Tcp(stream) => {
            let (read, write) = stream.split();
            both(read, write, &mut send, &mut receive, asked).await
        }
        Connected::Unix(stream) => {
            let (read, write) = stream.split();
            both(read, write, &mut send, &mut receive, asked).await
        }
    };
    match carried {
        Ok(()) => socket.end(),
        // Reset, before anything is waited for.
        Err(_) => drop(socket),
    }
    if carried == Err(Cut::Here) {
        linger(&mut receive).await;
    }
    carried
}

/// What was said last must not be overtaken by the reset of a stream that is dropped: the peer gives it up when it knows.
async fn linger(receive: &mut ReceiveHalf) {
    let rest = async {
        while let Ok(Some(_)) = receive.peek().await {
            receive.consume(usize::MAX);
        }
    };
    let _ = timeout(LINGER, rest).await;
}

/// What both directions know of each other.
#[derive(Default)]
struct Shared {
    /// The socket takes no more bytes.
    broken: AtomicBool,
    /// The end of the socket's data is being told, or was.
    ended: AtomicBool,
    /// It was.
    told: Notify,
}

async fn both(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    send: &mut SendHalf,
    receive: &mut ReceiveHalf,
    asked: bool,
) -> Result<(), Cut> {
    let shared = Shared::default();
    let out = async {
        let read = copy_out(&mut read, send).await?;
        let broken = read.is_err() || shared.broken.load(Ordering::Relaxed);
        shared.ended.store(true, Ordering::Relaxed);
        if broken {
            send.send(RESET).await?;
        }
        send.finish().await?;
        shared.told.notify_one();
        if broken { Err(Cut::Here) } else { Ok(()) }
    };
    let back = async {
        if asked {
            answer_to(receive).await?.map_err(Cut::Refused)?;
        }
        match copy_back(receive, &mut write).await? {
            Ok(()) => watch(receive, &shared).await,
            Err(_) => broken(&shared).await,
        }
    };
    tokio::try_join!(out, back).map(drop)
}

/// Nothing is read from the stream any more, so that nobody would notice its end while the socket has nothing to say.
async fn watch(receive: &ReceiveHalf, shared: &Shared) -> Result<(), Cut> {
    while timeout(PULSE, shared.told.notified()).await.is_err() {
        receive.lost().map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// The socket takes no more. If the end of its data was not told yet, that will be, as a reset: whoever reads from the
/// socket finds an end or an error, and what came before that still counts.
async fn broken(shared: &Shared) -> Result<(), Cut> {
    shared.broken.store(true, Ordering::Relaxed);
    if shared.ended.load(Ordering::Relaxed) {
        return Err(Cut::Late);
    }
    std::future::pending().await
}

/// Sends what the socket says as one long message, until its end: the inner result says whether that was in good order.
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

/// Gives the socket what comes, until its end: the inner result says whether the socket took it all.
async fn copy_back(
    receive: &mut ReceiveHalf,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<io::Result<()>, Cut> {
    loop {
        let Some((bytes, end)) = receive.peek().await? else { return Err(malformed()) };
        let there = bytes.len();
        let mut length = 0;
        if there > 0 {
            match timeout(PULSE, write.write(bytes)).await {
                Ok(Ok(0)) => return Ok(Err(io::ErrorKind::WriteZero.into())),
                Ok(Ok(written)) => length = written,
                Ok(Err(error)) => return Ok(Err(error)),
                // Whoever takes nothing is waited for, unless nobody is left who waits.
                Err(_) => {
                    receive.lost().map_or(Ok(()), Err)?;
                    continue;
                }
            }
        }
        receive.consume(length);
        if end && length == there {
            break;
        }
    }
    match receive.receive(RESET.len()).await?.as_deref() {
        None => Ok(write.shutdown().await),
        Some(RESET) => Err(Cut::There),
        Some(_) => Err(malformed()),
    }
}

fn malformed() -> Cut {
    Cut::Lost(StreamError::Finished)
}
