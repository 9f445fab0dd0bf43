//! Errors of sessions with middleboxes.

use thiserror::Error;

use crate::ContextError;

/// Why a session with middleboxes was not established, or ended.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PathError {
    /// The transport failed.
    #[error("the transport failed: {0}")]
    Transport(String),
    /// A party broke the protocol, refused, or was silent.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// This side has closed it.
    #[error("the session is closed")]
    Closed,
}

impl From<std::io::Error> for PathError {
    fn from(error: std::io::Error) -> Self {
        Self::Transport(error.to_string())
    }
}
