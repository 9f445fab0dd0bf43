//! The messages of a forwarded connection, on the stream that carries it.
//!
//! Whoever opens the stream sends the address to connect to, as text; whoever accepts it, a byte and a text that say
//! whether it is connected. Then each side sends what its socket says: of a stream of bytes one message, as long as it
//! takes, and of datagrams one message each. The end of the stream is the end of the socket's data; a message
//! [`RESET`] in front of it says that the socket was reset.

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
/// How long the side that accepted a stream may take to answer: more than it takes to wait for a place for the stream, and for
/// one for the connection, and to connect.
const ANSWER: Duration = Duration::from_secs(90);
/// The message behind the bytes of a socket that was reset.
pub(super) const RESET: &[u8] = &[1];

/// What became of a connection that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Whoever is at the address refused.
    Refused = 1,
    /// Nobody answered in time.
    TimedOut = 2,
    /// There is no way there.
    Unreachable = 3,
    /// The address is not allowed.
    NotAllowed = 4,
    /// The name of the host has no address.
    UnknownName = 5,
    /// As many connections as may be are carried already.
    Busy = 6,
    /// Anything else.
    Failed = 7,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs.
    pub cause: Cause,
    /// One line for people.
    pub text: String,
}

impl Failure {
    /// A failure; `text` is cut to one line of 512 bytes.
    pub fn new(cause: Cause, text: impl fmt::Display) -> Self {
        Self { cause, text: one_line(&text.to_string(), MAX_TEXT) }
    }

    /// What an error of connecting to `address` means.
    pub fn of(address: impl fmt::Display, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let cause = match error.kind() {
            // A Unix socket that is not there is one that nobody listens at.
            Kind::ConnectionRefused | Kind::ConnectionReset | Kind::NotFound => Cause::Refused,
            Kind::TimedOut => return Self::timed_out(address),
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => {
                Cause::Unreachable
            }
            _ => Cause::Failed,
        };
        Self::new(cause, format_args!("{address}: {error}"))
    }

    /// Nobody answers at `address`.
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

/// Reads an answer; `None` if it is none.
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
    // A control character in it is an attack on the terminal; what else is not printable, `levada` escapes.
    let plain = text.len() <= MAX_TEXT && !text.contains(char::is_control);
    plain.then(|| Err(Failure { cause, text: text.to_owned() }))
}

/// Waits for the answer of whoever accepted the stream; `Ok(Err)` says why there is no connection.
///
/// # Errors
/// What ended the stream; [`StreamError::Finished`] if there is no answer in good order.
pub async fn answer(stream: &mut Stream) -> Result<Result<(), Failure>, StreamError> {
    in_time(stream.receive(MAX_ANSWER)).await
}

/// As [`answer`], where the directions are apart.
pub(super) async fn answer_to(
    receive: &mut ReceiveHalf,
) -> Result<Result<(), Failure>, StreamError> {
    in_time(receive.receive(MAX_ANSWER)).await
}

async fn in_time(
    received: impl Future<Output = Result<Option<Vec<u8>>, StreamError>>,
) -> Result<Result<(), Failure>, StreamError> {
    match timeout(ANSWER, received).await {
        Ok(received) => read(received?.as_deref()),
        Err(_) => Ok(Err(Failure::timed_out("the other side"))),
    }
}

fn read(bytes: Option<&[u8]>) -> Result<Result<(), Failure>, StreamError> {
    bytes.and_then(decode).ok_or(StreamError::Finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_answers_never_panic_and_have_one_form() {
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
