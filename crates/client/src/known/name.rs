//! What is written where an identity is expected: the identity itself, or a name that is pinned here.

use levada_core::{Identity, IdentityError, check_name};
use levada_database::DatabaseError as StoreError;
use thiserror::Error;

use super::Known;

/// Why a text stands for no identity here.
#[derive(Debug, Error)]
pub enum NameError {
    /// No key is pinned under this name.
    #[error(
        "no identity is known here as `{0}`: write the identity (lv…), or name it with `levada peers add {0} IDENTITY`"
    )]
    Unknown(String),
    /// An identity that was mistyped or cut off.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// Neither an identity nor a name.
    #[error("{0:?} is neither an identity (lv…) nor a name that is known here")]
    Malformed(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Known {
    /// The key that `text` stands for: an identity stands for itself, a name for the key that is pinned under it.
    ///
    /// # Errors
    /// [`NameError`] says what to write in the place of `text`.
    pub fn identity_of(&self, text: &str) -> Result<Identity, NameError> {
        match text.parse() {
            Ok(identity) => return Ok(identity),
            Err(error) if looks_like_identity(text) => return Err(NameError::Identity(error)),
            Err(_) => {}
        }
        if check_name(text).is_err() {
            return Err(NameError::Malformed(text.chars().take(64).collect()));
        }
        let pin = self.by_name(text)?;
        Ok(pin.ok_or_else(|| NameError::Unknown(text.to_owned()))?.identity)
    }
}

/// Whether `text` is as long as an identity and begins like one. Names can look so, but none is given by chance.
fn looks_like_identity(text: &str) -> bool {
    const LENGTH: usize = 60; // `lv`, and base32 of 32 bytes and a checksum of 4
    text.len() == LENGTH && text.starts_with("lv")
}
