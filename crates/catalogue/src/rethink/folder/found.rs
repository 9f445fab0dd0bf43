//! What the import of a folder finds: objects, and reasons to skip one.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::model::{Draft, ModelError};
use crate::rethink::Incompatible;

/// The maximum length of a file, in bytes.
pub const MAX_FILE: u64 = 64 * 1024 * 1024;

/// An object that can be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder of the object.
    pub folder: PathBuf,
    /// The draft to publish; it passes [`Draft::check`].
    pub draft: Draft,
    /// The content of its package, at most [`MAX_FILE`] bytes.
    pub code: Vec<u8>,
}

/// A file or folder that is not imported.
#[derive(Debug, Error)]
#[error("{}: {reason}", path.display())]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// Why it is skipped.
    pub reason: Reason,
}

/// Why a file or folder is not imported.
#[derive(Debug, Error)]
pub enum Reason {
    /// The name of the folder is not a type of reTHINK's catalogue.
    #[error(
        "its name is not a type of object: use dataschema, hyperty, idp-proxy, protocolstub or runtime"
    )]
    UnknownType,
    /// A folder of packages, which are imported with their objects.
    #[error(
        "packages are taken from the objects that they belong to, not from a folder of their own"
    )]
    PackageFolder,
    /// A folder named `default`, which reTHINK's catalogue skipped too.
    #[error("folders named `default` are skipped: choose a default in the configuration instead")]
    DefaultFolder,
    /// There is no file description.json.
    #[error("there is no description.json")]
    NoDescription,
    /// A file that cannot be read.
    #[error("{file} cannot be read: {source}")]
    Io {
        /// The name of the file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A file of more than [`MAX_FILE`] bytes.
    #[error("{0} has more than {MAX_FILE} bytes")]
    TooLong(String),
    /// reTHINK's catalogue would not show the object, or did not start with it.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// The object exceeds a limit of this catalogue.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An earlier object has its type and name; reTHINK's catalogue showed only the first.
    #[error("{} has the same type and name", .0.display())]
    Duplicate(PathBuf),
}
