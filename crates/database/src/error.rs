//! Errors of a database file. Each names the file.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::disk::{DiskState, is_read_only};
use crate::file::folder_of;

/// A database file that could not be opened, read or written.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The file or its folder cannot be created or opened.
    #[error("{}: {source}", path.display())]
    File {
        /// The database file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another process has the database locked.
    #[error("{}: in use by another process", path.display())]
    InUse {
        /// The database file.
        path: PathBuf,
    },
    /// The file is not a database of the expected kind.
    #[error("{}: not a Levada database of this kind", path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// Written by a later release, with a schema version that this one does not know.
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
    /// The content is corrupt. `levada restore` replaces it from a backup.
    #[error("{}: the database is damaged: {detail}", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The first fault found.
        detail: String,
    },
    /// No space is left on the disk; the earlier content is unchanged.
    #[error("{}: no space left on the disk: free some and try again", path.display())]
    Full {
        /// The database file.
        path: PathBuf,
    },
    /// The disk is mounted read-only; the earlier content is unchanged.
    #[error("{}: the disk is read-only: remount it writable and try again", path.display())]
    ReadOnly {
        /// The database file.
        path: PathBuf,
    },
    /// Another error of SQLite: an I/O error, a violated constraint.
    #[error("{}: {source}", path.display())]
    Sql {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}

impl DatabaseError {
    /// Maps an I/O error of the file `path`.
    pub fn file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::File { path, source },
        }
    }

    /// The state of the disk, if it caused this error.
    pub fn disk(&self) -> Option<DiskState> {
        match self {
            Self::Full { .. } => Some(DiskState::Full),
            Self::ReadOnly { .. } => Some(DiskState::ReadOnly),
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
                // A file that was open when the disk was remounted read-only fails with these
                // codes, too.
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

/// Why a transaction was rolled back: SQLite failed, or the closure refused.
#[derive(Debug)]
pub enum Fault<E> {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// The closure refused.
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
