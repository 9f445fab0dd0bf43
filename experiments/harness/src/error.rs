//! Errors of measurements.

use std::path::PathBuf;

use thiserror::Error;

/// Why a measurement could not be made or kept.
#[derive(Debug, Error)]
pub enum HarnessError {
    /// A subject failed.
    #[error("{subject}: {reason}")]
    Subject {
        /// The subject.
        subject: String,
        /// Its error.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A line of a row file is not a row.
    #[error("{path}, line {line}: {reason}; move the file away to measure again")]
    NoRow {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The parser's error.
        reason: String,
    },
    /// The folder has rows of this experiment, and `--resume` was not given.
    #[error("{0} has rows already; keep them with --resume, or choose another folder")]
    RowsThere(PathBuf),
    /// The commit of the binary is unknown.
    #[error("this binary was built outside a checkout; name its commit with --commit")]
    NoCommit,
    /// The results could not be printed.
    #[error("standard output: {0}")]
    Output(std::io::Error),
    /// A figure could not be drawn.
    #[error("the figure {path}: {reason}")]
    Figure {
        /// The figure's file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
}

impl HarnessError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
