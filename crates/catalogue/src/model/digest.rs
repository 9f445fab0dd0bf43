//! The text form of a SHA-256 value in URLs and JSON.

use data_encoding::HEXLOWER;
use levada_core::Digest;

use super::ModelError;

const PREFIX: &str = "sha256:";

/// `sha256:` and 64 lower-case hexadecimal digits.
pub fn digest_text(digest: &Digest) -> String {
    format!("{PREFIX}{}", HEXLOWER.encode(digest))
}

/// Parses the output of [`digest_text`].
///
/// # Errors
/// [`ModelError::Digest`] if `text` has any other form.
pub fn parse_digest(text: &str) -> Result<Digest, ModelError> {
    let digits = text.strip_prefix(PREFIX).ok_or(ModelError::Digest)?;
    if digits.len() != 64 {
        return Err(ModelError::Digest);
    }
    let bytes = HEXLOWER.decode(digits.as_bytes()).map_err(|_| ModelError::Digest)?;
    bytes.try_into().map_err(|_| ModelError::Digest)
}
