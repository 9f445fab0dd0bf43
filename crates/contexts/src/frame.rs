//! Frames between the parties of a path: TLS records, and those of this protocol in the same form
//! (`docs/protocol.md`, "Frames of a path").

use super::{ContextError, Role};
use levada_channel::parts::HEADER;

/// The longest body of a frame, in bytes.
pub(crate) const MAX_BODY: usize = 18_000;

/// The type of the first frame of a session with middleboxes; TLS begins with 22.
pub const PATH: u8 = 0x40;
/// See [`PATH`].
pub(crate) const MBHELLO: u8 = 0x41;
/// See [`PATH`].
pub(crate) const MBKEY: u8 = 0x42;
/// See [`PATH`].
pub(crate) const ECHO: u8 = 0x43;
/// See [`PATH`].
pub(crate) const SSHARE: u8 = 0x44;
/// See [`PATH`].
pub(crate) const SBIND: u8 = 0x45;
/// See [`PATH`].
pub(crate) const CSHARE: u8 = 0x46;
/// See [`PATH`].
pub(crate) const READY: u8 = 0x47;
/// See [`PATH`].
pub(crate) const RECORD: u8 = 0x48;
/// See [`PATH`].
pub(crate) const AUDIT: u8 = 0x49;
/// See [`PATH`].
pub(crate) const ALERT: u8 = 0x4a;
/// See [`PATH`].
pub(crate) const PING: u8 = 0x4b;

/// The length of the first frame in `input`, header included; None if it is incomplete.
///
/// # Errors
/// A type that does not exist, a version other than TLS 1.3's, or a body that is too long.
pub(crate) fn length(input: &[u8]) -> Result<Option<usize>, ContextError> {
    let Some(&[kind, first, second, high, low]) = input.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    match kind {
        RECORD => {}
        // The first record of a client has the version 03 01 (RFC 8446 section 5.1).
        20..=23 if first == 3 => {}
        PATH..=PING if (first, second) == (3, 3) => {}
        _ => return Err(ContextError::Malformed("a frame of an unknown type")),
    }
    let body = usize::from(u16::from_be_bytes([high, low]));
    if body > MAX_BODY {
        return Err(ContextError::Malformed("a frame that is too long"));
    }
    Ok((input.len() >= HEADER + body).then_some(HEADER + body))
}

impl ContextError {
    /// Names the frame in which the error was found, and the neighbour that sent it. Errors that
    /// name a party by themselves stay as they are.
    pub(crate) fn within(self, whole: &[u8], from: Role) -> Self {
        match self {
            Self::Refused(_)
            | Self::Alert { .. }
            | Self::Timeout { .. }
            | Self::State(_)
            | Self::Closed => self,
            error => {
                let (frame, context) = name(whole);
                Self::Frame { error: Box::new(error), frame, context, from }
            }
        }
    }
}

/// The name of a frame's type, for errors, and the context of a record.
fn name(whole: &[u8]) -> (&'static str, Option<u8>) {
    const NAMES: [&str; 12] = [
        "PATH", "MBHELLO", "MBKEY", "ECHO", "SSHARE", "SBIND", "CSHARE", "READY", "RECORD",
        "AUDIT", "ALERT", "PING",
    ];
    let name = match whole {
        [RECORD, context, ..] => return ("RECORD", Some(*context)),
        [kind @ PATH..=PING, ..] => NAMES[usize::from(kind - PATH)],
        [20..=23, ..] => "a TLS record",
        _ => "a frame",
    };
    (name, None)
}

/// The header of a frame of this protocol, other than RECORD. `body` is at most [`MAX_BODY`].
pub(crate) fn header(kind: u8, body: usize) -> [u8; HEADER] {
    let [high, low] = u16::try_from(body).unwrap_or(u16::MAX).to_be_bytes();
    [kind, 3, 3, high, low]
}

/// Appends a frame; the body is the concatenation of `parts`.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let body = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&header(kind, body));
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Takes fields from the front of a frame's body.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// The frame, for errors.
    what: &'static str,
}

impl<'a> Fields<'a> {
    /// The fields of `body`; `what` names the malformed frame in errors.
    pub(crate) fn new(body: &'a [u8], what: &'static str) -> Self {
        Self { rest: body, what }
    }

    pub(crate) fn error(&self) -> ContextError {
        ContextError::Malformed(self.what)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ContextError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(self.error())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ContextError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], ContextError> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or(self.error())?;
        self.rest = rest;
        Ok(first)
    }

    /// What is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), ContextError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_types_and_bounded_lengths_are_frames() {
        assert_eq!(length(&[PATH, 3, 3, 0, 1, 9]).unwrap(), Some(6));
        assert_eq!(length(&[PATH, 3, 3, 0, 2, 9]).unwrap(), None);
        assert_eq!(length(&[RECORD, 7, 0x80, 0, 0]).unwrap(), Some(5));
        assert!(length(&[PATH, 3, 1, 0, 1]).is_err());
        assert!(length(&[0x4c, 3, 3, 0, 1]).is_err());
        assert!(length(&[24, 3, 3, 0, 1]).is_err());
        let [high, low] = (MAX_BODY as u16 + 1).to_be_bytes();
        assert!(length(&[RECORD, 0, 0, high, low]).is_err());
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(Some(length)) = length(bytes) {
                assert!(length <= bytes.len());
            }
        });
    }
}
