//! Parses an identity in an argument: the identity itself, or a name that is pinned here.

use levada_core::{Identity, IdentityError, check_name};
use levada_database::DatabaseError as StoreError;
use thiserror::Error;

use super::Known;

/// Why a text does not denote an identity.
#[derive(Debug, Error)]
pub enum NameError {
    /// No key is pinned under this name.
    #[error(
        "no identity is known here as `{0}`: use the identity (lv…), or pin it with `levada peers add {0} IDENTITY`"
    )]
    Unknown(String),
    /// A mistyped or truncated identity.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// Neither an identity nor a name.
    #[error("{0:?} is neither an identity (lv…) nor a name that is pinned here")]
    Malformed(String),
    /// An abbreviation that several identities begin with.
    #[error(
        "several identities that are known here begin with {text}: {candidates}; give more characters"
    )]
    Ambiguous {
        /// The abbreviation.
        text: String,
        /// The identities, with their names.
        candidates: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NameError {
    /// The error for an abbreviation, with the identities that it may stand for and their names.
    pub fn ambiguous(text: &str, candidates: &[(Identity, Option<String>)]) -> Self {
        let one = |(identity, name): &(Identity, Option<String>)| match name {
            Some(name) => format!("{name} ({identity})"),
            None => identity.to_string(),
        };
        let candidates = candidates.iter().map(one).collect::<Vec<_>>().join(", ");
        Self::Ambiguous { text: text.to_owned(), candidates }
    }
}

impl Known {
    /// The key that `text` denotes: an identity itself, or the key that is pinned under a name.
    ///
    /// # Errors
    /// [`NameError`] names the fault and the remedy.
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

/// Whether `text` has the length and prefix of an identity. A name can have both, but hardly by
/// chance.
fn looks_like_identity(text: &str) -> bool {
    const LENGTH: usize = 60; // `lv`, and base32 of 32 bytes and a checksum of 4
    text.len() == LENGTH && text.starts_with("lv")
}
