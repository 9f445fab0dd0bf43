//! The messages that every built-in service speaks on its stream once the session has started: one
//! byte of tag, then the payload. They are those of a program: standard input towards the service,
//! standard output and error towards the client, and an exit code at the end.

use std::fmt;
use std::str::FromStr;

use levada_core::printable::one_line;
use levada_session::{ReceiveHalf, StreamError};
use thiserror::Error;

/// The longest payload of a message, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;
/// The longest message, in bytes: a tag and a payload.
pub const MAX_MESSAGE: usize = MAX_PAYLOAD + 1;
/// The longest text of [`Message::Failure`], in bytes.
pub const MAX_FAILURE: usize = 512;
/// The exit code that follows [`Message::Failure`]: a local error at the service's side.
pub const FAILURE_EXIT: u8 = 120;

/// The first byte of a message that carries a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Standard input towards the service, standard output towards the client.
    Data = 0,
    /// Standard error, towards the client.
    Error = 1,
}

const END: u8 = 2;
const EXIT: u8 = 3;
const WINDOW: u8 = 4;
const FAILURE: u8 = 5;

/// One message, borrowing its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Standard input towards the service, standard output towards the client; at most [`MAX_PAYLOAD`].
    Data(&'a [u8]),
    /// Standard error, towards the client; at most [`MAX_PAYLOAD`].
    Error(&'a [u8]),
    /// Standard input has ended. The client keeps its sending direction open all the same.
    End,
    /// The program has ended with this code; the last message towards the client.
    Exit(u8),
    /// The client's terminal has this size now.
    Window(Window),
    /// The service could not do it; one line for a person. [`Message::Exit`] with [`FAILURE_EXIT`] follows.
    Failure(&'a str),
}

/// Why bytes are no message.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum StdioError {
    /// Longer than [`MAX_MESSAGE`].
    #[error("a message of more than {MAX_MESSAGE} bytes")]
    TooLong,
    /// No message has this form.
    #[error("a malformed message")]
    Malformed,
    /// A well-formed message that may not go in this direction.
    #[error("a message in the wrong direction")]
    Direction,
}

impl<'a> Message<'a> {
    /// Reads one message; nothing is copied.
    ///
    /// # Errors
    /// [`StdioError`] if it is too long or malformed.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, StdioError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(StdioError::TooLong);
        }
        let (&tag, payload) = bytes.split_first().ok_or(StdioError::Malformed)?;
        match (tag, payload) {
            (tag, _) if tag == Tag::Data as u8 => Ok(Self::Data(payload)),
            (tag, _) if tag == Tag::Error as u8 => Ok(Self::Error(payload)),
            (END, []) => Ok(Self::End),
            (EXIT, &[code]) => Ok(Self::Exit(code)),
            (WINDOW, &[r0, r1, c0, c1]) => Ok(Self::Window(Window {
                rows: u16::from_be_bytes([r0, r1]),
                columns: u16::from_be_bytes([c0, c1]),
            })),
            (FAILURE, _) => decode_failure(payload).map(Self::Failure),
            _ => Err(StdioError::Malformed),
        }
    }

    /// Appends the message to `bytes`. A [`Message::Failure`] becomes one line of at most
    /// [`MAX_FAILURE`] bytes. For a large payload that is still to be read, see [`Chunk`].
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Data(payload) => append(bytes, Tag::Data as u8, payload),
            Self::Error(payload) => append(bytes, Tag::Error as u8, payload),
            Self::End => bytes.push(END),
            Self::Exit(code) => append(bytes, EXIT, &[code]),
            Self::Window(Window { rows, columns }) => {
                append(bytes, WINDOW, &rows.to_be_bytes());
                bytes.extend_from_slice(&columns.to_be_bytes());
            }
            Self::Failure(text) => append(bytes, FAILURE, one_line(text, MAX_FAILURE).as_bytes()),
        }
    }

    /// The message as bytes of its own.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

/// A buffer for one message of bytes: they are read to where they are sent from, behind the tag.
pub struct Chunk(Box<[u8]>);

impl Chunk {
    /// An empty message with this tag.
    pub fn new(tag: Tag) -> Self {
        let mut bytes = vec![0; MAX_MESSAGE].into_boxed_slice();
        bytes[0] = tag as u8;
        Self(bytes)
    }

    /// Where to put the payload: [`MAX_PAYLOAD`] bytes.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.0[1..]
    }

    /// The message whose payload is the first `length` bytes of [`Self::space`].
    pub fn message(&self, length: usize) -> &[u8] {
        &self.0[..=length.min(MAX_PAYLOAD)]
    }
}

/// Receives messages one after the other into one buffer.
pub struct Inbox {
    bytes: Box<[u8]>,
    filled: usize,
    /// The buffer holds a whole message, which the caller has had.
    whole: bool,
}

/// Why no message could be received.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReceiveError {
    /// The stream or its connection ended early.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// What came is no message.
    #[error(transparent)]
    Message(#[from] StdioError),
}

impl Inbox {
    /// An empty buffer.
    pub fn new() -> Self {
        // One byte more than a message may have, to see that it has more.
        let bytes = vec![0; MAX_MESSAGE + 1].into_boxed_slice();
        Self { bytes, filled: 0, whole: false }
    }

    /// The next message; `None` once the peer has finished. If the future is dropped, the part that
    /// came is kept, and the next call goes on behind it.
    ///
    /// # Errors
    /// [`ReceiveError`] if the stream ended early, or what came is no message.
    pub async fn next(
        &mut self,
        receive: &mut ReceiveHalf,
    ) -> Result<Option<Message<'_>>, ReceiveError> {
        if self.whole {
            (self.filled, self.whole) = (0, false);
        }
        while !self.whole {
            let Some((length, end)) = receive.read(&mut self.bytes[self.filled..]).await? else {
                return Ok(None);
            };
            self.filled += length;
            if self.filled > MAX_MESSAGE {
                return Err(StdioError::TooLong.into());
            }
            self.whole = end;
        }
        Ok(Some(Message::decode(&self.bytes[..self.filled])?))
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// The size of a terminal in characters. As text: rows, a space, columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many lines.
    pub rows: u16,
    /// How many characters in a line.
    pub columns: u16,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rows, self.columns)
    }
}

impl FromStr for Window {
    type Err = StdioError;

    fn from_str(text: &str) -> Result<Self, StdioError> {
        let (rows, columns) = text.split_once(' ').ok_or(StdioError::Malformed)?;
        Ok(Self { rows: parse_size(rows)?, columns: parse_size(columns)? })
    }
}

fn parse_size(text: &str) -> Result<u16, StdioError> {
    // The standard parser would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(StdioError::Malformed);
    }
    text.parse().map_err(|_| StdioError::Malformed)
}

fn append(bytes: &mut Vec<u8>, tag: u8, payload: &[u8]) {
    bytes.reserve(1 + payload.len());
    bytes.push(tag);
    bytes.extend_from_slice(payload);
}

/// A control character in the text is an attack on the terminal; what else is not printable, `levada` escapes.
fn decode_failure(payload: &[u8]) -> Result<&str, StdioError> {
    let text = str::from_utf8(payload).map_err(|_| StdioError::Malformed)?;
    if text.len() > MAX_FAILURE || text.contains(char::is_control) {
        return Err(StdioError::Malformed);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_injective_and_never_panics() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(message) = Message::decode(bytes) {
                assert_eq!(&message.to_bytes(), bytes);
            }
        });
    }

    #[test]
    fn arbitrary_windows_never_panic() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(window) = text.parse::<Window>() {
                assert_eq!(window.to_string().parse(), Ok(window));
            }
        });
    }

    #[test]
    fn every_message_round_trips() {
        let messages = [
            Message::Data(b""),
            Message::Data(b"in"),
            Message::Error(b"err"),
            Message::End,
            Message::Exit(255),
            Message::Window(Window { rows: 24, columns: 80 }),
            Message::Failure("no such program"),
        ];
        for message in messages {
            assert_eq!(Message::decode(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let bad: [&[u8]; 8] =
            [b"", &[2, 0], &[3], &[3, 0, 0], &[4, 0, 24, 0], &[5, b'a', b'\n'], &[5, 0xff], &[6]];
        for bytes in bad {
            assert_eq!(Message::decode(bytes), Err(StdioError::Malformed), "{bytes:?}");
        }
        assert!(Message::decode(&vec![0; MAX_MESSAGE]).is_ok());
        assert_eq!(Message::decode(&vec![0; MAX_MESSAGE + 1]), Err(StdioError::TooLong));
    }

    #[test]
    fn a_failure_becomes_one_short_line() {
        let text = format!("a\nb\x1b[2J{}", "é".repeat(600));
        let bytes = Message::Failure(&text).to_bytes();
        let Ok(Message::Failure(line)) = Message::decode(&bytes) else { panic!() };
        assert!(line.starts_with("ab[2Jé") && line.len() <= MAX_FAILURE);
    }

    #[test]
    fn a_window_is_two_plain_numbers() {
        assert_eq!("24 80".parse(), Ok(Window { rows: 24, columns: 80 }));
        for text in ["", "24", "24 ", " 80", "24  80", "+24 80", "24 80 ", "24 65536", "24x80"] {
            assert_eq!(text.parse::<Window>(), Err(StdioError::Malformed), "{text:?}");
        }
    }

    #[tokio::test]
    async fn an_inbox_takes_messages_of_every_length_and_none_that_is_longer() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let ((mut send, _near), (_far, mut receive)) = (near.split(), far.split());
        let mut inbox = Inbox::new();
        let longest = vec![0; MAX_MESSAGE + 1];
        let lengths = [1, 2, MAX_MESSAGE, 1, MAX_MESSAGE + 1];
        let write = async {
            for length in lengths {
                // The last may be refused before it is whole.
                let _ = send.send(&longest[..length]).await;
            }
        };
        let read = async {
            for length in &lengths[..4] {
                let expected = Ok(Some(Message::Data(&longest[1..*length])));
                assert!(inbox.next(&mut receive).await == expected, "{length}");
            }
            let error = inbox.next(&mut receive).await.unwrap_err();
            assert_eq!(error, ReceiveError::Message(StdioError::TooLong));
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn an_inbox_goes_on_where_it_was_interrupted() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let ((mut send, _near), (_far, mut receive)) = (near.split(), far.split());
        let mut inbox = Inbox::new();
        send.write(&[0, b'a'], false).await.unwrap();
        let short = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(short, inbox.next(&mut receive)).await.is_err());
        send.write(b"b", true).await.unwrap();
        assert_eq!(inbox.next(&mut receive).await, Ok(Some(Message::Data(b"ab"))));
        send.finish().await.unwrap();
        assert_eq!(inbox.next(&mut receive).await, Ok(None));
    }

    #[test]
    fn a_chunk_is_sent_from_where_it_was_read_to() {
        let mut chunk = Chunk::new(Tag::Error);
        chunk.space()[..2].copy_from_slice(b"ab");
        assert_eq!(Message::decode(chunk.message(2)), Ok(Message::Error(b"ab")));
        assert_eq!(chunk.message(MAX_PAYLOAD).len(), MAX_MESSAGE);
        assert_eq!(chunk.space().len(), MAX_PAYLOAD);
    }
}
