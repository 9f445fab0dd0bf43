//! What can be wrong with a database file. Every error names the file.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::file::folder_of;
use crate::room::{Disk, is_read_only};

/// A database file that could not be opened, read or written.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The file or its folder cannot be created or opened.
    #[error("{}: {source}", path.display())]
    File {
        /// The database file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process holds the database.
    #[error("{}: in use by another process", path.display())]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The file is something else than the database that belongs there.
    #[error("{}: not a Levada database of this kind", path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// Written by a later release, whose format this one does not know.
    #[error(
        "{}: written by a newer Levada (schema version {found}; this one knows up to {known})",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The highest schema version that this build reads.
        known: u32,
    },
    /// The content contradicts itself. `levada restore` is the remedy.
    #[error("{}: the database is damaged: {detail}", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// There is no room for what was to be written; what was there before is as it was.
    #[error("{}: no room left on the disk: make some and try again", path.display())]
    Full {
        /// The database file.
        path: PathBuf,
    },
    /// The disk cannot be written to; what was there before is as it was.
    #[error("{}: the disk is read-only: mount it to be written to and try again", path.display())]
    ReadOnly {
        /// The database file.
        path: PathBuf,
    },
    /// SQLite could not do what was asked: an I/O error, a constraint.
    #[error("{}: {source}", path.display())]
    Sql {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl DatabaseError {
    /// `source` happened to the file `path`.
    pub fn file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::File { path, source },
        }
    }

    /// What the disk does with a write, if it is the disk that failed.
    pub fn disk(&self) -> Option<Disk> {
        match self {
            Self::Full { .. } => Some(Disk::Full),
            Self::ReadOnly { .. } => Some(Disk::ReadOnly),
            _ => None,
        }
    }

    pub(crate) fn damaged(path: &Path, detail: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), detail: detail.to_string() }
    }

    pub(crate) fn sql(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::Error as Sql;
        let path = path.to_owned();
        match &source {
            Sql::FromSqlConversionFailure(..)
            | Sql::IntegralValueOutOfRange(..)
            | Sql::InvalidColumnType(..) => Self::damaged(&path, source),
            _ => match source.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Self::Foreign { path },
                Some(ErrorCode::DatabaseCorrupt) => Self::damaged(&path, source),
                Some(ErrorCode::DiskFull) => Self::Full { path },
                // A file that was open when the disk became so fails in other ways.
                Some(ErrorCode::ReadOnly | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
                    if is_read_only(folder_of(&path)) =>
                {
                    Self::ReadOnly { path }
                }
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
                _ => Self::Sql { path, source },
            },
        }
    }
}

/// How a transaction ends without a result: SQLite failed, or the answer is no.
#[derive(Debug)]
pub enum Fault<E> {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// The work itself refuses.
    Refused(E),
}

impl<E> From<rusqlite::Error> for Fault<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl<E: From<DatabaseError>> Fault<E> {
    pub(crate) fn at(self, path: &Path) -> E {
        match self {
            Self::Sql(error) => DatabaseError::sql(path, error).into(),
            Self::Refused(error) => error,
        }
    }
}
