//! The messages of a started session on its stream: a tag of one byte, then the payload. They carry
//! what a program has: standard input towards the service, standard output and error towards the
//! client, and an exit code at the end.

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
    /// Standard input towards the service, standard output towards the client; at most
    /// [`MAX_PAYLOAD`].
    Data(&'a [u8]),
    /// Standard error, towards the client; at most [`MAX_PAYLOAD`].
    Error(&'a [u8]),
    /// Standard input has ended. The client keeps its sending direction open.
    End,
    /// The program has ended with this code; the last message towards the client.
    Exit(u8),
    /// The new size of the client's terminal.
    Window(Window),
    /// Why the service failed, in one line. [`Message::Exit`] follows, as a rule with
    /// [`FAILURE_EXIT`].
    Failure(&'a str),
}

/// Why bytes are not a valid message.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum StdioError {
    /// Longer than [`MAX_MESSAGE`].
    #[error("a message of more than {MAX_MESSAGE} bytes")]
    TooLong,
    /// An unknown tag, or a payload of the wrong form.
    #[error("a malformed message")]
    Malformed,
    /// A well-formed message that only the other side may send.
    #[error("a message in the wrong direction")]
    Direction,
}

impl<'a> Message<'a> {
    /// Decodes one message; the payload is borrowed.
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
    /// [`MAX_FAILURE`] bytes. [`Chunk`] avoids a copy of a payload that has yet to be read.
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

    /// The encoded message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

/// A buffer for one [`Message::Data`] or [`Message::Error`]: the payload is read into its place
/// behind the tag, and the message is sent from there without a copy.
pub struct Chunk(Box<[u8]>);

impl Chunk {
    /// An empty message with this tag.
    pub fn new(tag: Tag) -> Self {
        let mut bytes = vec![0; MAX_MESSAGE].into_boxed_slice();
        bytes[0] = tag as u8;
        Self(bytes)
    }

    /// The space for the payload: [`MAX_PAYLOAD`] bytes.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.0[1..]
    }

    /// The message whose payload is the first `length` bytes of [`Self::space`].
    pub fn message(&self, length: usize) -> &[u8] {
        &self.0[..=length.min(MAX_PAYLOAD)]
    }
}

/// Receives messages one after the other into one buffer.
pub struct MessageReader {
    bytes: Box<[u8]>,
    filled: usize,
    /// The buffer holds a complete message, which [`Self::next`] has returned.
    complete: bool,
}

/// Why no message could be received.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReceiveError {
    /// The stream or its connection ended early.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The received bytes are not a valid message.
    #[error(transparent)]
    Message(#[from] StdioError),
}

impl MessageReader {
    /// An empty buffer.
    pub fn new() -> Self {
        // One byte more than the limit, to detect a message that exceeds it.
        let bytes = vec![0; MAX_MESSAGE + 1].into_boxed_slice();
        Self { bytes, filled: 0, complete: false }
    }

    /// The next message; `None` once the peer has finished. Cancel-safe: if the future is dropped,
    /// the received part is kept, and the next call continues after it.
    ///
    /// # Errors
    /// [`ReceiveError`] if the stream ended early, or the received bytes are not a valid message.
    pub async fn next(
        &mut self,
        receive: &mut ReceiveHalf,
    ) -> Result<Option<Message<'_>>, ReceiveError> {
        if self.complete {
            (self.filled, self.complete) = (0, false);
        }
        while !self.complete {
            let Some((length, end)) = receive.read(&mut self.bytes[self.filled..]).await? else {
                return Ok(None);
            };
            self.filled += length;
            if self.filled > MAX_MESSAGE {
                return Err(StdioError::TooLong.into());
            }
            self.complete = end;
        }
        Ok(Some(Message::decode(&self.bytes[..self.filled])?))
    }
}

impl Default for MessageReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The size of a terminal, in characters. Its text is rows, a space, columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of lines.
    pub rows: u16,
    /// Characters in a line.
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
    // The standard parser accepts a sign.
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

/// Refuses control characters, with which a peer could attack the client's terminal. `levada`
/// escapes the other characters that are not printable.
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
    fn each_message_round_trips() {
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
    fn a_window_is_parsed_from_two_plain_numbers() {
        assert_eq!("24 80".parse(), Ok(Window { rows: 24, columns: 80 }));
        for text in ["", "24", "24 ", " 80", "24  80", "+24 80", "24 80 ", "24 65536", "24x80"] {
            assert_eq!(text.parse::<Window>(), Err(StdioError::Malformed), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_accepts_messages_up_to_the_limit_and_refuses_longer_ones() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let (mut send, _near) = near.split();
        let (_far, mut receive) = far.split();
        let mut reader = MessageReader::new();
        let longest = vec![0; MAX_MESSAGE + 1];
        let lengths = [1, 2, MAX_MESSAGE, 1, MAX_MESSAGE + 1];
        let write = async {
            for length in lengths {
                // The last one may be refused before it is complete.
                let _ = send.send(&longest[..length]).await;
            }
        };
        let read = async {
            for length in &lengths[..4] {
                let expected = Ok(Some(Message::Data(&longest[1..*length])));
                assert!(reader.next(&mut receive).await == expected, "{length}");
            }
            let error = reader.next(&mut receive).await.unwrap_err();
            assert_eq!(error, ReceiveError::Message(StdioError::TooLong));
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn a_reader_continues_after_its_future_was_dropped() {
        let (near, far) = levada_session::testing::pair().await.unwrap();
        let (mut send, _near) = near.split();
        let (_far, mut receive) = far.split();
        let mut reader = MessageReader::new();
        send.write(&[0, b'a'], false).await.unwrap();
        let short = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(short, reader.next(&mut receive)).await.is_err());
        send.write(b"b", true).await.unwrap();
        assert_eq!(reader.next(&mut receive).await, Ok(Some(Message::Data(b"ab"))));
        send.finish().await.unwrap();
        assert_eq!(reader.next(&mut receive).await, Ok(None));
    }

    #[test]
    fn a_chunk_sends_the_payload_that_was_read_into_it() {
        let mut chunk = Chunk::new(Tag::Error);
        chunk.space()[..2].copy_from_slice(b"ab");
        assert_eq!(Message::decode(chunk.message(2)), Ok(Message::Error(b"ab")));
        assert_eq!(chunk.message(MAX_PAYLOAD).len(), MAX_MESSAGE);
        assert_eq!(chunk.space().len(), MAX_PAYLOAD);
    }
}
