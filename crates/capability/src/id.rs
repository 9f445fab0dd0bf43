//! The ids of links and sessions: bytes, written as lower-case hex.

use std::fmt;
use std::str::FromStr;

use levada_core::Digest;
use thiserror::Error;

/// The id of the invitation or the ticket whose secret has this hash, in lists and in the audit
/// log: its first 8 bytes in hexadecimal digits.
pub(crate) fn id_of_secret(hash: &Digest) -> String {
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text that is not an id.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("an id of this kind is {0} characters of 0-9 and a-f")]
pub struct IdError(usize);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $length:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $length]);

        impl $name {
            /// The length in bytes.
            pub const LEN: usize = $length;

            /// The id with these bytes.
            pub const fn from_bytes(bytes: [u8; $length]) -> Self {
                Self(bytes)
            }

            /// The bytes of this id.
            pub const fn as_bytes(&self) -> &[u8; $length] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let mut bytes = [0; $length];
                read_hex(text, &mut bytes).ok_or(IdError(2 * $length))?;
                Ok(Self(bytes))
            }
        }
    };
}

id! {
    /// Names one link of a capability, and thereby all links derived from it.
    LinkId, 32
}

id! {
    /// Names one session of a node.
    SessionId, 16
}

fn read_hex(text: &str, bytes: &mut [u8]) -> Option<()> {
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(())
}

/// Upper case is refused, so that the text of an id is canonical.
fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_lower_case_hex_only() {
        let id = SessionId::from_bytes(std::array::from_fn(|i| i as u8 * 17));
        assert_eq!(id.to_string(), "00112233445566778899aabbccddeeff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("00112233445566778899AABBCCDDEEFF".parse::<SessionId>().is_err());
        assert!("00112233445566778899aabbccddee".parse::<SessionId>().is_err());
        assert!(id.to_string().parse::<LinkId>().is_err());
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(id) = text.parse::<SessionId>() {
                assert_eq!(&id.to_string(), text);
            }
        });
    }
}
