//! The messages of a forwarded connection, on the stream that carries it.
//!
//! The side that opens the stream sends the address to connect to, as text. The side that accepts
//! it answers with a byte and a text: connected, or why not. Then each side sends the data of its
//! socket: the bytes of a connection as one message of any length, each datagram as one message.
//! The end of the stream is the end of the socket's data; a message [`RESET`] before it means that
//! the socket was reset.

use std::fmt;
use std::io;
use std::time::Duration;

use levada_core::printable::one_line;
use levada_session::{ReceiveHalf, Stream, StreamError};
use tokio::time::timeout;

/// The longest text of an answer, in bytes.
const MAX_TEXT: usize = 512;
/// The longest answer, in bytes.
pub(super) const MAX_ANSWER: usize = 1 + MAX_TEXT;
/// How long the side that accepted a stream may take to answer: longer than its waits for a stream
/// permit (30 s) and a connection permit (30 s), and its connect timeout (10 s), together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// The message after the bytes of a socket that was reset.
pub(super) const RESET: &[u8] = &[1];

/// Why a requested connection was not made, as the code in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The target refused the connection.
    Refused = 1,
    /// There was no answer in time.
    TimedOut = 2,
    /// There is no route to the target.
    Unreachable = 3,
    /// The address is not allowed.
    NotAllowed = 4,
    /// The host's name has no address.
    UnknownName = 5,
    /// The limit of connections is reached.
    Busy = 6,
    /// Anything else.
    Failed = 7,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub cause: Cause,
    /// The reason in one line.
    pub text: String,
}

impl Failure {
    /// A failure; `text` is truncated to one line of 512 bytes.
    pub fn new(cause: Cause, text: impl fmt::Display) -> Self {
        Self { cause, text: one_line(&text.to_string(), MAX_TEXT) }
    }

    /// The failure for an error of connecting to `address`.
    pub fn of(address: impl fmt::Display, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let cause = match error.kind() {
            // `NotFound`: the file of a Unix socket does not exist.
            Kind::ConnectionRefused | Kind::ConnectionReset | Kind::NotFound => Cause::Refused,
            Kind::TimedOut => return Self::timed_out(address),
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => {
                Cause::Unreachable
            }
            _ => Cause::Failed,
        };
        Self::new(cause, format_args!("{address}: {error}"))
    }

    /// The failure for a timeout at `address`.
    pub(super) fn timed_out(address: impl fmt::Display) -> Self {
        Self::new(Cause::TimedOut, format_args!("{address}: no answer in time"))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&[self.cause as u8], self.text.as_bytes()].concat()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The answer that there is a connection.
pub(super) const CONNECTED: &[u8] = &[0];

/// Decodes an answer; `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Result<(), Failure>> {
    let (&code, text) = bytes.split_first()?;
    if code == 0 {
        return text.is_empty().then_some(Ok(()));
    }
    let cause = match code {
        1 => Cause::Refused,
        2 => Cause::TimedOut,
        3 => Cause::Unreachable,
        4 => Cause::NotAllowed,
        5 => Cause::UnknownName,
        6 => Cause::Busy,
        7 => Cause::Failed,
        _ => return None,
    };
    let text = str::from_utf8(text).ok()?;
    // A peer could attack the terminal with control characters. `levada` escapes other characters
    // that are not printable.
    let plain = text.len() <= MAX_TEXT && !text.contains(char::is_control);
    plain.then(|| Err(Failure { cause, text: text.to_owned() }))
}

/// Waits up to 90 s for the answer of the side that accepted the stream; `Ok(Err)` is the reason
/// why there is no connection.
///
/// # Errors
/// What ended the stream; [`StreamError::Finished`] if the answer is missing or invalid.
pub async fn receive_answer(stream: &mut Stream) -> Result<Result<(), Failure>, StreamError> {
    decode_in_time(stream.receive(MAX_ANSWER)).await
}

/// As [`receive_answer`], for the receiving half.
pub(super) async fn receive_answer_on(
    receive: &mut ReceiveHalf,
) -> Result<Result<(), Failure>, StreamError> {
    decode_in_time(receive.receive(MAX_ANSWER)).await
}

async fn decode_in_time(
    received: impl Future<Output = Result<Option<Vec<u8>>, StreamError>>,
) -> Result<Result<(), Failure>, StreamError> {
    match timeout(ANSWER_TIMEOUT, received).await {
        Ok(received) => received?.as_deref().and_then(decode).ok_or(StreamError::Finished),
        Err(_) => Ok(Err(Failure::timed_out("the other side"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_answers_never_panic_and_round_trip() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| match decode(bytes) {
            Some(Ok(())) => assert_eq!(bytes, CONNECTED),
            Some(Err(failure)) => assert_eq!(&failure.encode(), bytes),
            None => {}
        });
    }

    #[test]
    fn a_failure_is_one_short_line() {
        let failure = Failure::new(Cause::Refused, format_args!("a\n\x1b{}", "é".repeat(600)));
        assert!(failure.text.starts_with("aé") && failure.text.len() <= MAX_TEXT);
        assert_eq!(decode(&failure.encode()), Some(Err(failure)));
        for wrong in [&b""[..], &[0, 1], &[8], &[1, 0xff], b"\x01a\n"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
