//! A message channel over the stream of a session, or over a local socket. On a socket, each
//! message is preceded by its length (4 bytes, big-endian).

use std::io;
use std::time::Duration;

use levada_service::LINGER;
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long the peer may take to accept one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Size of one read from a socket, in bytes, while the length of the message is unknown.
const READ_SIZE: usize = 64 * 1024;
/// Size of the length before a message, in bytes.
const PREFIX: usize = 4;

/// Why no further message can be sent or received.
#[derive(Debug, Error)]
pub enum PipeError {
    /// The stream or its connection ended.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The socket failed.
    #[error("the socket: {0}")]
    Socket(#[from] io::Error),
    /// The bytes are not a message, or the message is not allowed in this state of the protocol.
    #[error("a malformed message")]
    Malformed,
    /// A timeout passed: the peer did not accept a message, or did not send one that was due.
    #[error("the peer sent or accepted no message in time")]
    Stalled,
}

/// The sending direction.
pub enum Sender {
    /// The stream of a session.
    Stream(SendHalf),
    /// A local socket.
    Socket(Box<dyn AsyncWrite + Send + Unpin>),
}

/// The receiving direction.
pub enum Receiver {
    /// The stream of a session.
    Stream(ReceiveHalf),
    /// A local socket.
    Socket(SocketReader),
}

/// The read half of a socket, with a buffer for incomplete messages.
pub struct SocketReader {
    read: Box<dyn AsyncRead + Send + Unpin>,
    buffer: Vec<u8>,
}

/// Both directions of a session's stream.
pub fn of_stream(stream: Stream) -> (Sender, Receiver) {
    let (send, receive) = stream.split();
    (Sender::Stream(send), Receiver::Stream(receive))
}

/// Both directions of a socket.
pub fn of_bytes(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
) -> (Sender, Receiver) {
    let reader = SocketReader { read: Box::new(read), buffer: Vec::new() };
    (Sender::Socket(Box::new(write)), Receiver::Socket(reader))
}

impl Sender {
    /// Sends one message. Not cancel-safe: if the future is dropped before it completes, no further
    /// message can be sent.
    ///
    /// # Errors
    /// [`PipeError`] if the stream or socket has ended, or the peer does not accept the message
    /// within 30 s.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), PipeError> {
        timeout(SEND_TIMEOUT, self.write(message)).await.map_err(|_| PipeError::Stalled)?
    }

    async fn write(&mut self, message: &[u8]) -> Result<(), PipeError> {
        match self {
            Self::Stream(half) => half.send(message).await?,
            Self::Socket(socket) => {
                let length = u32::try_from(message.len()).map_err(|_| PipeError::Malformed)?;
                socket.write_all(&length.to_be_bytes()).await?;
                socket.write_all(message).await?;
                socket.flush().await?;
            }
        }
        Ok(())
    }

    /// Ends the sending direction.
    ///
    /// # Errors
    /// [`PipeError`] if the stream or socket has ended.
    pub async fn finish(&mut self) -> Result<(), PipeError> {
        match self {
            Self::Stream(half) => Ok(half.finish().await?),
            Self::Socket(socket) => Ok(socket.shutdown().await?),
        }
    }
}

impl Receiver {
    /// The next message; `None` after the peer has finished. Cancel-safe.
    ///
    /// # Errors
    /// [`PipeError::Malformed`] if the message is longer than `max` bytes; otherwise why the stream
    /// or socket ended.
    pub async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, PipeError> {
        match self {
            Self::Stream(half) => match half.receive(max).await {
                Err(StreamError::TooLong(_)) => Err(PipeError::Malformed),
                other => Ok(other?),
            },
            Self::Socket(reader) => reader.receive(max).await,
        }
    }

    /// Reads and discards data until the peer has finished.
    async fn drain(&mut self) {
        let mut buffer = vec![0; READ_SIZE];
        match self {
            Self::Stream(half) => while let Ok(Some(_)) = half.read(&mut buffer).await {},
            Self::Socket(reader) => {
                while reader.read.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
            }
        }
    }
}

impl SocketReader {
    async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, PipeError> {
        loop {
            let wanted = match self.buffer.first_chunk::<PREFIX>() {
                Some(prefix) => PREFIX + message_length(*prefix, max)?,
                None => PREFIX,
            };
            if self.buffer.len() >= wanted && wanted > PREFIX {
                return Ok(Some(self.take(wanted)));
            }
            self.buffer.reserve(READ_SIZE.max(wanted.saturating_sub(self.buffer.len())));
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(PipeError::Malformed) };
            }
        }
    }

    /// Removes the message that ends at `end` from the buffer.
    fn take(&mut self, end: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(end);
        let mut message = std::mem::replace(&mut self.buffer, rest);
        message.drain(..PREFIX);
        message
    }
}

/// The length of a message, which must be from 1 to `max`.
fn message_length(prefix: [u8; PREFIX], max: usize) -> Result<usize, PipeError> {
    let length = usize::try_from(u32::from_be_bytes(prefix)).map_err(|_| PipeError::Malformed)?;
    if (1..=max).contains(&length) { Ok(length) } else { Err(PipeError::Malformed) }
}

/// Finishes this side, and waits up to [`LINGER`] for the peer to finish its own: the end of the
/// connection must not overtake the last message.
pub(super) async fn close(mut send: Sender, mut receive: Receiver) {
    // Errors and the timeout are ignored: every answer has been sent, and the peer may have
    // disconnected.
    if send.finish().await.is_ok() {
        let _ = timeout(LINGER, receive.drain()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> ((Sender, Receiver), (Sender, Receiver)) {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        (of_bytes(near_read, near_write), of_bytes(far_read, far_write))
    }

    #[tokio::test]
    async fn a_socket_delivers_messages_in_order_and_unchanged() {
        let ((mut send, _near), (_far, mut receive)) = pair();
        let messages: Vec<Vec<u8>> = [1, 2, 100, 70_000, 3].map(|length| vec![7; length]).into();
        let sent = messages.clone();
        let sending = async {
            for message in &sent {
                send.send(message).await.unwrap();
            }
            send.finish().await.unwrap();
        };
        let receiving = async {
            let mut received = Vec::new();
            while let Some(message) = receive.receive(70_000).await.unwrap() {
                received.push(message);
            }
            received
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert!(received == messages);
    }

    #[tokio::test]
    async fn rejects_messages_that_are_too_long_empty_or_truncated() {
        for bytes in [&[0, 0, 0, 11][..], &[0xff; 4], &[0; 4], &[0, 0, 0, 5, 1, 2], &[0]] {
            let (near, far) = tokio::io::duplex(64);
            let (read, write) = tokio::io::split(far);
            let (_send, mut receive) = of_bytes(read, write);
            let (_read, mut write) = tokio::io::split(near);
            write.write_all(bytes).await.unwrap();
            write.shutdown().await.unwrap();
            assert!(matches!(receive.receive(10).await, Err(PipeError::Malformed)), "{bytes:?}");
        }
    }
}
