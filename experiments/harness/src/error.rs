//! What can go wrong with a measurement.

use std::path::PathBuf;

use thiserror::Error;

/// Why a measurement could not be made or kept.
#[derive(Debug, Error)]
pub enum HarnessError {
    /// A subject failed.
    #[error("{subject}: {reason}")]
    Subject {
        /// Which one.
        subject: String,
        /// What it said.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of rows has something else in it.
    #[error("{path}, line {line}: {reason}; move the file away to measure anew")]
    NoRow {
        /// Which file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Rows are there already, and nobody said that they may be kept.
    #[error("{0} has rows already; keep them with --resume, or choose another folder")]
    RowsThere(PathBuf),
    /// The results could not be printed.
    #[error("standard output: {0}")]
    Output(std::io::Error),
    /// A figure could not be drawn.
    #[error("the figure {path}: {reason}")]
    Figure {
        /// Where it was to go.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl HarnessError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
