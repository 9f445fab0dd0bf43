//! The text form of identities, capabilities, invitations and tickets: a prefix, then base32 (RFC
//! 4648, lower case, no padding) of the bytes followed by a checksum of 4 bytes.
//!
//! The encoding is canonical: upper case, padding, white space and unused bits set in the last
//! character are refused.

use data_encoding::{BASE32_NOPAD, Encoding, Specification};
use std::sync::LazyLock;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::{label, sha256};

const CHECKSUM_LEN: usize = 4;

#[allow(clippy::expect_used)] // The specification is a constant; a test decodes with it.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification: Specification = BASE32_NOPAD.specification();
    specification.symbols = specification.symbols.to_ascii_lowercase();
    specification.encoding().expect("lower-case base32 is a valid encoding")
});

/// Why a text form was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TextError {
    /// The text has another prefix.
    #[error("it does not begin with `{0}`")]
    Prefix(&'static str),
    /// The text is longer than the longest of its kind.
    #[error("it is too long")]
    Length,
    /// A character outside lower-case base32, or unused bits set at the end.
    #[error("it has a character outside lower-case base32, or is cut off")]
    Encoding,
    /// The checksum does not match: a character was changed or lost.
    #[error("its checksum does not match: a character was changed or lost")]
    Checksum,
    /// The checksum matches, but the content is malformed.
    #[error("its content is malformed")]
    Content,
}

fn checksum(prefix: &str, bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = sha256(&[label::CHECKSUM.as_bytes(), &[0], prefix.as_bytes(), &[0], bytes]);
    [digest[0], digest[1], digest[2], digest[3]]
}

/// Bytes in base32 (RFC 4648, lower case, no padding).
pub fn base32(bytes: &[u8]) -> String {
    BASE32.encode(bytes)
}

/// `prefix` followed by `bytes` and their checksum in base32.
pub fn encode_text(prefix: &str, bytes: &[u8]) -> String {
    let mut payload = Zeroizing::new(bytes.to_vec());
    payload.extend_from_slice(&checksum(prefix, bytes));
    let mut text = prefix.to_owned();
    BASE32.encode_append(&payload, &mut text);
    text
}

/// The bytes of a text made by [`encode_text`] with the same prefix.
///
/// # Errors
/// [`TextError`] names the fault; texts of more than `max_bytes` bytes of content are refused
/// before any allocation.
pub fn decode_text(
    prefix: &'static str,
    text: &str,
    max_bytes: usize,
) -> Result<Vec<u8>, TextError> {
    let encoded = text.strip_prefix(prefix).ok_or(TextError::Prefix(prefix))?;
    if encoded.len() > (max_bytes + CHECKSUM_LEN).div_ceil(5) * 8 {
        return Err(TextError::Length);
    }
    let mut bytes = BASE32.decode(encoded.as_bytes()).map_err(|_| TextError::Encoding)?;
    let split = bytes.len().checked_sub(CHECKSUM_LEN).ok_or(TextError::Encoding)?;
    let sum = bytes.split_off(split);
    if sum != checksum(prefix, &bytes) {
        return Err(TextError::Checksum);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_a_changed_character_is_refused() {
        bolero::check!().with_type::<(Vec<u8>, usize, u8)>().for_each(|(bytes, at, byte)| {
            let text = encode_text("lvtest", bytes);
            assert_eq!(decode_text("lvtest", &text, bytes.len()).as_ref(), Ok(bytes));
            let mut other = text.clone().into_bytes();
            let at = at % other.len();
            other[at] = *byte;
            if let Ok(other) = String::from_utf8(other)
                && other != text
            {
                assert!(decode_text("lvtest", &other, bytes.len()).is_err());
            }
        });
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(bytes) = decode_text("", text, 64) {
                assert_eq!(&encode_text("", &bytes), text);
            }
        });
    }
}
