//! Why a store did not do what it was asked.

use std::io;
use std::path::{Path, PathBuf};

use levada_core::Digest;
use levada_database::DatabaseError;
use thiserror::Error;

use super::{MAX_QUERY, MAX_WORDS};
use crate::model::{Key, ModelError, Version, digest_text};

/// Why a store did not do what it was asked. Nothing has changed then.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is no room for what was to be stored; what was there before is as it was.
    #[error("{}: no space left on the disk: free some and try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The database of the embedded store.
    #[error(transparent)]
    Database(DatabaseError),
    /// A file of the embedded store.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// What was to be published breaks a bound.
    #[error(transparent)]
    Draft(#[from] ModelError),
    /// A version refers to a package that is not here.
    #[error("the package {} is not in the store: upload it first", digest_text(.0))]
    NoSuchBlob(Digest),
    /// A version says of its package what is not so.
    #[error("the package {} has {found} bytes, not {claimed}", digest_text(digest))]
    PackageLength {
        /// The package.
        digest: Digest,
        /// What the version says.
        claimed: u64,
        /// How long it is.
        found: u64,
    },
    /// There is no such version to yank.
    #[error("{key} has no version {version}")]
    NoSuchVersion {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
    },
    /// What was uploaded is not what was announced.
    #[error(
        "the content has the digest {}, not {}: it was changed or cut on its way",
        digest_text(found),
        digest_text(expected)
    )]
    WrongDigest {
        /// What was announced.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// Nothing can be added to a blob after a failure: parts of it may be missing.
    #[error("an earlier part of the upload was not stored: begin again")]
    Broken,
    /// Those who follow from `after` have missed changes.
    #[error(
        "the changes behind revision {after} are not all here (from {kept} to {newest} they are): read everything anew"
    )]
    Compacted {
        /// From where they were asked for.
        after: u64,
        /// The lowest revision from which they can be.
        kept: u64,
        /// The revision of the last change.
        newest: u64,
    },
    /// A query that is too long.
    #[error("a query has at most {MAX_QUERY} bytes and {MAX_WORDS} words")]
    Query,
    /// Not a cursor that this store gave out.
    #[error("not a cursor of this catalogue: begin without one")]
    Cursor,
}

impl StoreError {
    /// `source` happened to the file `path`.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::File { path, source },
        }
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Full { path } => Self::Full { path },
            other => Self::Database(other),
        }
    }
}
