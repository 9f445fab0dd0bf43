//! The errors of a store.

use std::io;
use std::path::{Path, PathBuf};

use levada_core::Digest;
use levada_database::DatabaseError;
use thiserror::Error;

use super::limits::{MAX_QUERY, MAX_WORDS};
use crate::model::{Key, ModelError, Version, digest_text};

/// An error of a store. The failed call has changed nothing, but for [`Self::Uncertain`].
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk is full; the stored data is unchanged.
    #[error("{}: no space left on the disk: free some and try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The database of the embedded store failed.
    #[error(transparent)]
    Database(DatabaseError),
    /// A file of the embedded store cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The draft exceeds a limit.
    #[error(transparent)]
    Draft(#[from] ModelError),
    /// A version refers to a package that is not stored.
    #[error("the package {} is not in the store: upload it first", digest_text(.0))]
    NoSuchBlob(Digest),
    /// A version states another length than its package has.
    #[error("the package {} has {found} bytes, not {claimed}", digest_text(digest))]
    PackageLength {
        /// The package.
        digest: Digest,
        /// The length that the version states, in bytes.
        claimed: u64,
        /// The length of the package, in bytes.
        found: u64,
    },
    /// The version does not exist.
    #[error("{key} has no version {version}")]
    NoSuchVersion {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
    },
    /// The uploaded content does not have the announced digest.
    #[error(
        "the content has the digest {}, not {}: it was changed or truncated in transit",
        digest_text(found),
        digest_text(expected)
    )]
    WrongDigest {
        /// The announced digest.
        expected: Digest,
        /// The digest of the uploaded content.
        found: Digest,
    },
    /// The upload cannot continue after a failure, because parts of it may be missing.
    #[error("an earlier part of the upload was not stored: begin again")]
    Broken,
    /// Some of the changes behind `after` are not available.
    #[error(
        "not all changes behind revision {after} are available (only from {kept} to {newest}): read everything again"
    )]
    Compacted {
        /// The requested revision.
        after: u64,
        /// The lowest revision behind which all changes are available.
        kept: u64,
        /// The revision of the last change.
        newest: u64,
    },
    /// This node of a catalogue on several nodes does not have the revision yet, which another node
    /// may have shown.
    #[error(
        "this node has the changes up to revision {newest}, and not yet up to {after}: try again in a moment, or ask another node of the catalogue"
    )]
    Behind {
        /// The requested revision.
        after: u64,
        /// The revision of the last change here.
        newest: u64,
    },
    /// The engine of a catalogue on several nodes does not answer, or refuses. Nothing was changed.
    #[error(
        "the engine of this catalogue cannot be used: {0}; nothing was changed, and reading goes on: try again later"
    )]
    Unavailable(String),
    /// The engine of a catalogue on several nodes has not said whether it made the change.
    #[error(
        "the engine of this catalogue has not answered, so this may be done or not: try again, which changes nothing if it is done"
    )]
    Uncertain,
    /// The engine answers and cannot be used as it is configured. Trying again is of no use.
    #[error("the engine of this catalogue must be configured otherwise: {0}")]
    Misconfigured(String),
    /// Another node of the catalogue has a later version, which writes records that this one cannot
    /// read.
    #[error(
        "the catalogue has records in format {0}, and this version of Levada knows only earlier ones: \
         nothing is written here, and reading goes on with what came before; install the version of \
         the other nodes"
    )]
    Newer(u32),
    /// The record of a change is in the log and cannot be applied. No node has it.
    #[error(
        "record {0} of the catalogue's log conflicts with earlier ones, and no node applies it: \
         `levada catalogue log` shows it"
    )]
    Rejected(u64),
    /// The query is too long.
    #[error("a query has at most {MAX_QUERY} bytes and {MAX_WORDS} words")]
    Query,
    /// The cursor is not one of this store.
    #[error("not a cursor of this catalogue: begin without one")]
    Cursor,
}

impl StoreError {
    /// The error `source` of an operation on the file `path`.
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
