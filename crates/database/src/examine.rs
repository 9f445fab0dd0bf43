//! Opening a database to read it, without a change on disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::database::{Database, FLAGS, Kind, configure, version_in_transaction};
use crate::error::{DatabaseError, Fault};
use crate::file;

impl Database {
    /// Opens `path` to read it, and returns whether its schema is the newest one. Nothing changes
    /// on disk: the file is neither created nor migrated, and its write-ahead log keeps what a
    /// killed process left there.
    ///
    /// # Errors
    /// The [`DatabaseError`] with which [`Self::open`] would fail.
    pub fn examine(path: &Path, kind: &Kind) -> Result<(Self, bool), DatabaseError> {
        let failed = |error| DatabaseError::file(path, error);
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(file::not_regular()));
        }
        file::check_access(path, kind.exclusive).map_err(failed)?;
        let (connection, found) = match fs::exists(log_of(path)).map_err(failed)? {
            true => with_log(path, kind),
            false => without_log(path, kind),
        }?;
        let database = Self { path: path.to_owned(), connection: Mutex::new(connection) };
        Ok((database, found == kind.newest()))
    }
}

/// The write-ahead log of the database `path`.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Opens a database that no process uses and that has no log. SQLite neither locks an immutable
/// file nor creates a log.
fn without_log(path: &Path, kind: &Kind) -> Result<(Connection, u32), DatabaseError> {
    let failed = |error| DatabaseError::sql(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let uri = immutable(path).map_err(|error| DatabaseError::file(path, error))?;
    let connection = Connection::open_with_flags(uri, flags).map_err(failed)?;
    read_version(connection, path, &Kind { exclusive: false, ..*kind })
}

/// The address of a file that does not change (sqlite.org/uri.html).
fn immutable(path: &Path) -> io::Result<String> {
    let path = std::path::absolute(path)?;
    let escaped = path.as_os_str().as_encoded_bytes().iter().map(|byte| match byte {
        b'/' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    Ok(format!("file://{}?immutable=1", escaped.collect::<String>()))
}

/// Opens a database with a log: a process was killed, or uses it now. With the exclusive lock
/// SQLite has the index of the log in memory, and writes no `-shm`.
fn with_log(path: &Path, kind: &Kind) -> Result<(Connection, u32), DatabaseError> {
    let alone = Kind { exclusive: true, busy_timeout: Duration::ZERO, ..*kind };
    match read_with_log(path, &alone) {
        // Another process uses it, and keeps the log and its index.
        Err(DatabaseError::InUse { .. }) if !kind.exclusive => read_with_log(path, kind),
        other => other,
    }
}

fn read_with_log(path: &Path, kind: &Kind) -> Result<(Connection, u32), DatabaseError> {
    let failed = |error| DatabaseError::sql(path, error);
    let flags = FLAGS.difference(OpenFlags::SQLITE_OPEN_CREATE);
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    // The last connection would copy the log into the database, and delete it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    read_version(connection, path, kind)
}

fn read_version(
    connection: Connection,
    path: &Path,
    kind: &Kind,
) -> Result<(Connection, u32), DatabaseError> {
    configure(&connection, kind).map_err(|error| DatabaseError::sql(path, error))?;
    let found = version_in_transaction(&connection, path, kind);
    let found = found.map_err(|fault: Fault<DatabaseError>| fault.at(path))?;
    Ok((connection, found))
}
