//! The messages inside a channel, compiled from the files of `proto/`, and their bounded decoding.

#![allow(missing_docs)] // Generated; the documentation is in the .proto files.

use prost::Message;
use thiserror::Error;

use crate::printable::one_line;

include!(concat!(env!("OUT_DIR"), "/levada.v1.rs"));

/// The longest [`Operation`] or [`Answer`], in bytes; a longer one is refused before it is decoded.
pub const MAX_MESSAGE: usize = 256 * 1024;

/// The longest [`Mediation`], in bytes: a question or a reply with the longest parameters of one
/// link.
pub const MAX_MEDIATION: usize = 128 * 1024;

/// The longest text of a refusal, in bytes.
const MAX_TEXT: usize = 512;

/// The messages of the service `catalogue`.
pub mod catalogue {
    include!(concat!(env!("OUT_DIR"), "/levada.catalogue.v1.rs"));

    /// The longest [`Call`] or [`Answer`], in bytes: the longest descriptor (1 MiB) and the other
    /// fields.
    pub const MAX_MESSAGE: usize = (1024 + 128) * 1024;
    /// The longest [`Record`] of a catalogue on several nodes, in bytes.
    pub const MAX_RECORD: usize = MAX_MESSAGE + 1024;
    /// The longest message with a part of a package, in bytes.
    pub const MAX_PART: usize = 64 * 1024;
}

/// A message that could not be decoded.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum WireError {
    /// Longer than [`MAX_MESSAGE`], or than the limit of its kind.
    #[error("a message is longer than allowed")]
    TooLong,
    /// Not a message of this type, or a required field is missing.
    #[error("a malformed message")]
    Malformed,
}

/// Decodes one message of at most [`MAX_MESSAGE`] bytes.
///
/// # Errors
/// [`WireError`] if it is too long or not a message of type `M`.
pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, WireError> {
    decode_within(bytes, MAX_MESSAGE)
}

/// As [`decode`], with a limit of `max` bytes.
///
/// # Errors
/// As for [`decode`].
pub fn decode_within<M: Message + Default>(bytes: &[u8], max: usize) -> Result<M, WireError> {
    if bytes.len() > max {
        return Err(WireError::TooLong);
    }
    M::decode(bytes).map_err(|_| WireError::Malformed)
}

/// Encodes one message.
pub fn encode<M: Message>(message: &M) -> Vec<u8> {
    message.encode_to_vec()
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Granted({})", self.framing)
    }
}

impl std::fmt::Debug for Join {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Join")
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exchange")
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

impl std::fmt::Debug for catalogue::Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admitted({} providers)", self.providers)
    }
}

impl operation::Operation {
    /// The name of the operation in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Query(_) => "query",
            Self::Request(_) => "request",
            Self::Connect(_) => "connect",
            Self::Terminate(_) => "terminate",
            Self::Revoke(_) => "revoke",
            Self::Join(_) => "join",
            Self::Succession(_) => "succession",
            Self::Successor(_) => "successor",
            Self::Attach(_) => "attach",
            Self::Start(_) => "start",
            Self::Requested(_) => "requested",
            Self::Exchange(_) => "exchange",
            Self::ReadGroups(_) => "read_groups",
        }
    }
}

/// The first code in CLOSE that the layers above a channel define.
pub const FIRST_CLOSE_CODE: u64 = 16;

impl Reason {
    /// The code in CLOSE for this reason; the lower codes are those of the channel.
    pub fn close_code(self) -> u64 {
        FIRST_CLOSE_CODE + self as u64
    }
}

impl Refusal {
    /// A refusal with a text for the user; `text` is cut to 512 bytes and to one line.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason: reason.into(), text: one_line(&text.into(), MAX_TEXT) }
    }
}

impl Ended {
    /// Why a session of type `capability` ends; `text` is cut to 512 bytes and to one line.
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self { cause: cause.into(), text: one_line(&text.into(), MAX_TEXT) }
    }
}

impl catalogue::Failed {
    /// Why a call failed; `text` is cut to 512 bytes and to one line.
    pub fn new(cause: catalogue::Cause, text: impl Into<String>) -> Self {
        Self { cause: cause.into(), text: one_line(&text.into(), MAX_TEXT) }
    }
}

impl From<mediation::Part> for Mediation {
    fn from(part: mediation::Part) -> Self {
        Self { part: Some(part) }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        answer::Answer::Refusal(refusal).into()
    }
}

impl From<answer::Answer> for Answer {
    fn from(answer: answer::Answer) -> Self {
        Self { answer: Some(answer) }
    }
}

impl From<operation::Operation> for Operation {
    fn from(operation: operation::Operation) -> Self {
        Self { operation: Some(operation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_bytes_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = decode::<Operation>(bytes);
            let _ = decode::<Answer>(bytes);
            let _ = decode::<Mediation>(bytes);
            let _ = decode::<Question>(bytes);
            let _ = decode::<Reply>(bytes);
            let _ = decode_within::<catalogue::Call>(bytes, catalogue::MAX_MESSAGE);
            let _ = decode_within::<catalogue::Answer>(bytes, catalogue::MAX_MESSAGE);
        });
    }

    #[test]
    fn refusal_text_is_cut_to_one_line_of_512_bytes() {
        let refusal =
            Refusal::new(Reason::Denied, format!("a\nb\x1b[31m\u{202e}{}", "é".repeat(600)));
        assert!(refusal.text.len() <= 512 && !refusal.text.contains(['\n', '\x1b', '\u{202e}']));
    }
}
