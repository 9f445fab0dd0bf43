//! The error of `levada up`.

use thiserror::Error;

/// Why a node could not start, or had to stop.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UpError(pub String);

impl UpError {
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
