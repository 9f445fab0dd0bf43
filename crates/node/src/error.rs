//! Why a node could not be started.

use thiserror::Error;

/// Why a node could not be started or had to end.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UpError(pub String);

impl UpError {
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
