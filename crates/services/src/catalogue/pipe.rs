//! What the messages of a conversation go through: the stream of a session, or the bytes of a socket on this
//! machine, where each message has its length in front (4 bytes, big-endian).

use std::io;
use std::time::Duration;

use levada_service::LINGER;
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long the other side may take to accept one message.
const STALL: Duration = Duration::from_secs(30);
/// How much room a socket is read into, in bytes, before the length of a message is known.
const ROOM: usize = 64 * 1024;
/// The length in front of a message.
const HEAD: usize = 4;

/// Why a conversation cannot go on.
#[derive(Debug, Error)]
pub enum PipeError {
    /// The stream or its connection ended.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The socket failed.
    #[error("the socket: {0}")]
    Socket(#[from] io::Error),
    /// Something that is no message, or none that belongs here.
    #[error("a malformed message")]
    Malformed,
    /// The other side takes nothing, or says nothing when it should.
    #[error("the other side does not go on")]
    Stalled,
}

/// The sending direction.
pub enum Sender {
    /// Of a session.
    Stream(SendHalf),
    /// Of a socket.
    Bytes(Box<dyn AsyncWrite + Send + Unpin>),
}

/// The receiving direction.
pub enum Receiver {
    /// Of a session.
    Stream(ReceiveHalf),
    /// Of a socket.
    Bytes(Bytes),
}

/// A socket, and what was read from it that is no whole message yet.
pub struct Bytes {
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
    let bytes = Bytes { read: Box::new(read), buffer: Vec::new() };
    (Sender::Bytes(Box::new(write)), Receiver::Bytes(bytes))
}

impl Sender {
    /// Sends one message. When the future is dropped before it is ready, nothing more can be sent.
    ///
    /// # Errors
    /// [`PipeError`] if the other side has gone, or takes nothing for half a minute.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), PipeError> {
        timeout(STALL, self.write(message)).await.map_err(|_| PipeError::Stalled)?
    }

    async fn write(&mut self, message: &[u8]) -> Result<(), PipeError> {
        match self {
            Self::Stream(half) => half.send(message).await?,
            Self::Bytes(bytes) => {
                let length = u32::try_from(message.len()).map_err(|_| PipeError::Malformed)?;
                bytes.write_all(&length.to_be_bytes()).await?;
                bytes.write_all(message).await?;
                bytes.flush().await?;
            }
        }
        Ok(())
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// [`PipeError`] if the other side has gone.
    pub async fn finish(&mut self) -> Result<(), PipeError> {
        match self {
            Self::Stream(half) => Ok(half.finish().await?),
            Self::Bytes(bytes) => Ok(bytes.shutdown().await?),
        }
    }
}

impl Receiver {
    /// The next message; `None` once the other side has finished. If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// [`PipeError::Malformed`] if it has more than `max` bytes; otherwise what ended the pipe.
    pub async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, PipeError> {
        match self {
            Self::Stream(half) => match half.receive(max).await {
                Err(StreamError::TooLong(_)) => Err(PipeError::Malformed),
                other => Ok(other?),
            },
            Self::Bytes(bytes) => bytes.receive(max).await,
        }
    }

    /// Reads and forgets what still comes, until the other side has ended.
    async fn drain(&mut self) {
        let mut buffer = vec![0; ROOM];
        match self {
            Self::Stream(half) => while let Ok(Some(_)) = half.read(&mut buffer).await {},
            Self::Bytes(bytes) => {
                while bytes.read.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
            }
        }
    }
}

impl Bytes {
    async fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, PipeError> {
        loop {
            let wanted = match self.buffer.first_chunk::<HEAD>() {
                Some(head) => HEAD + length(*head, max)?,
                None => HEAD,
            };
            if self.buffer.len() >= wanted && wanted > HEAD {
                return Ok(Some(self.take(wanted)));
            }
            self.buffer.reserve(ROOM.max(wanted.saturating_sub(self.buffer.len())));
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(PipeError::Malformed) };
            }
        }
    }

    /// Takes the message that ends at `end`.
    fn take(&mut self, end: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(end);
        let mut message = std::mem::replace(&mut self.buffer, rest);
        message.drain(..HEAD);
        message
    }
}

/// No message is empty, and none is longer than `max`.
fn length(head: [u8; HEAD], max: usize) -> Result<usize, PipeError> {
    let length = usize::try_from(u32::from_be_bytes(head)).map_err(|_| PipeError::Malformed)?;
    if (1..=max).contains(&length) { Ok(length) } else { Err(PipeError::Malformed) }
}

/// Ends this side, and waits until the other has ended its own: what was said last must not be overtaken by the end
/// of the connection.
pub(super) async fn farewell(mut send: Sender, mut receive: Receiver) {
    // Whatever the other side still does, the conversation has come to its end: it may have gone already.
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
    async fn messages_of_a_socket_come_as_they_were_sent() {
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
    async fn what_is_too_long_empty_or_cut_off_is_no_message() {
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
