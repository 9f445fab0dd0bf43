//! An error in a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An error in a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// The problem.
        source: io::Error,
    },
    /// The file has an error.
    #[error("{file}:{line}: {}{message}", KeyText(.key))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key with the names of its tables; empty if the file is not TOML.
        key: String,
        /// The problem, and the allowed values.
        message: String,
    },
}

struct KeyText<'a>(&'a str);

impl fmt::Display for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "key `{}`: ", self.0) }
    }
}
