//! Errors of a list of files, and the limit that they name.

use thiserror::Error;

/// The longest name of a file or folder, in bytes (NAME_MAX of Linux).
pub(in crate::content) const MAX_NAME: usize = 255;

/// The reason for which a list of files is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// Not in the format.
    #[error("the list of files is malformed")]
    Malformed,
    /// A path that leaves the folder, or that not every file system can hold.
    #[error(
        "the path {0:?} is not allowed in a shared folder: it must be relative, without `..`, control characters or backslashes, and at most {MAX_NAME} bytes for each name"
    )]
    Path(String),
    /// A link that leads out of the folder.
    #[error("the link {0:?} leads out of the shared folder")]
    Link(String),
    /// A name that Windows reserves for a device, or cannot hold.
    #[error(
        "the path {0:?} is not allowed in a share: Windows reserves CON, PRN, AUX, NUL, COM1 and LPT1 with any extension, and no name may end with a dot or a space; rename it"
    )]
    Reserved(String),
    /// Two files with one path, or a file where another path needs a folder.
    #[error("two shared files have the path {0:?}; rename one of them")]
    Twice(String),
    /// Longer than [`MAX_MANIFEST`](super::MAX_MANIFEST), more than a million entries, or the files
    /// together than 2^63 bytes.
    #[error("too many files for one share; pack them into an archive")]
    TooLong,
}
