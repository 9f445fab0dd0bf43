//! Errors of a lab.

use std::io;

use thiserror::Error;

use crate::Backend;

/// Why a lab, a node or a link could not be made or used.
#[derive(Debug, Error)]
pub enum LabError {
    /// The process is not root.
    #[error("a lab makes network namespaces and devices, which needs root: run it with sudo")]
    NotRoot,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed action, as it follows "cannot".
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A program that the lab uses (`ip`, `tc`, `chrt`) failed.
    #[error("`{command}` failed: {reason}")]
    Tool {
        /// The command and its arguments or input.
        command: String,
        /// Its error output.
        reason: String,
    },
    /// A value of a link, an option or an argument that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The backend that was asked for cannot do this link, or not on this machine.
    #[error("the backend {backend} cannot be used: {reason}")]
    Backend {
        /// The backend.
        backend: Backend,
        /// Why not, and what to do.
        reason: String,
    },
    /// There is no path of links between these nodes.
    #[error("no links lead from {0} to {1}")]
    NoPath(String, String),
    /// No packet of the round-trip measurement was echoed.
    #[error("no echo came back from {0}")]
    NoEcho(String),
    /// The lab was dropped; its nodes and links are gone.
    #[error("the lab is gone")]
    Gone,
}

impl LabError {
    /// For `map_err`: the failed action, as it follows "cannot".
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::System { what, source: source.into() }
    }
}
