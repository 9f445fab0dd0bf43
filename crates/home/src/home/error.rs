//! Why a home could not be used.

use levada_core::{RandomError, TextError, shell_word};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a home could not be used. Each text names the remedy.
#[derive(Debug, Error)]
pub enum HomeError {
    /// Neither `LEVADA_HOME` nor a home folder is known.
    #[error("no home folder is known: set LEVADA_HOME (or HOME) to a folder of yours")]
    NoHome,
    /// `LEVADA_HOME` is set to an empty text, as by a script whose variable has no value.
    #[error(
        "LEVADA_HOME is empty: set it to the folder of a home, or unset it to use ~/.config/levada \
         and ~/.local/state/levada"
    )]
    EmptyVariable,
    /// An operation of the operating system failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation, as in "cannot ACTION PATH".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Others on this machine may read the key.
    #[error(
        "{path} can be read by others (mode {mode:03o}): run `chmod 600 {}`, and `levada id rotate` if they may have read it",
        shell_word(&.path.display().to_string())
    )]
    KeyExposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder, device or FIFO is in the place of the key file.
    #[error(
        "{path} is not a regular file: rename it, and restore the key from a backup if there was one"
    )]
    NotAFile {
        /// The path of the key file.
        path: PathBuf,
    },
    /// The key file has no valid key.
    #[error(
        "{path} has no valid key ({reason}): restore it from a backup, or rename it to start with a new identity"
    )]
    KeyMalformed {
        /// The key file.
        path: PathBuf,
        /// The fault in its text.
        reason: TextError,
    },
    /// Another process holds this home's lock.
    #[error("{} uses this home ({path}): stop it first (`levada stop`), or set LEVADA_HOME to another folder", lock_owner(.process))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, if the file has its number.
        process: Option<u32>,
    },
    /// A folder for private files belongs to another user, or other users can write to it.
    #[error(
        "{path} is not safe to use ({reason}): if it is yours, run `chmod go-w {}`, or else set \
         LEVADA_HOME to a folder of yours",
        shell_word(&.path.display().to_string())
    )]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// The fault.
        reason: &'static str,
    },
    /// The operating system has no random bytes for a new key.
    #[error(transparent)]
    Random(#[from] RandomError),
}

fn lock_owner(process: &Option<u32>) -> String {
    process.map_or_else(|| "another process".into(), |id| format!("a node (process {id})"))
}

impl HomeError {
    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::EmptyVariable => 2,
            _ => 120,
        }
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
