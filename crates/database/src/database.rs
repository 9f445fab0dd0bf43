//! Opening a database, migrating it to the newest schema version, and its transactions.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::error::{DatabaseError, Fault};
use crate::{file, vacuum};

/// A kind of database: its identification, its schema and how it is locked.
pub struct Kind {
    /// SQLite's `application_id`; a file with another value is refused.
    pub application_id: i32,
    /// One script per schema version, in order. A released one is never changed.
    pub migrations: &'static [&'static str],
    /// Whether a process locks the file for as long as it has it open.
    pub exclusive: bool,
    /// How long to wait for another process's lock.
    pub busy_timeout: Duration,
    /// Lets [`Database::release_pages`] make the file shorter after rows were removed.
    pub shrinks: bool,
}

impl Kind {
    /// The highest schema version that this build knows.
    pub(crate) fn newest(&self) -> u32 {
        u32::try_from(self.migrations.len()).unwrap_or(u32::MAX)
    }
}

/// An open database.
pub struct Database {
    pub(crate) path: PathBuf,
    pub(crate) connection: Mutex<Connection>,
}

impl Database {
    /// Opens `path`, creates it with mode 0600 if it is missing, and brings it to the newest schema
    /// version.
    ///
    /// # Errors
    /// [`DatabaseError`] names the file and the fault; a file of another kind, or of a newer schema
    /// version, is not changed.
    pub fn open(path: &Path, kind: &Kind) -> Result<Self, DatabaseError> {
        let failed = |error| DatabaseError::file(path, error);
        file::create_private(path).map_err(failed)?;
        // SQLite would report an I/O error.
        file::check_access(path, kind.exclusive).map_err(failed)?;
        Self::set_up(Connection::open_with_flags(path, FLAGS), path, kind)
    }

    /// As [`Self::open`], with another virtual file system of SQLite, in which `path` is only a
    /// name.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with_vfs(path: &Path, vfs: &str, kind: &Kind) -> Result<Self, DatabaseError> {
        Self::set_up(Connection::open_with_flags_and_vfs(path, FLAGS, vfs), path, kind)
    }

    fn set_up(
        connection: rusqlite::Result<Connection>,
        path: &Path,
        kind: &Kind,
    ) -> Result<Self, DatabaseError> {
        let at = |fault: Fault<DatabaseError>| fault.at(path);
        let mut connection = connection.map_err(|error| DatabaseError::sql(path, error))?;
        configure(&connection, kind).map_err(|error| DatabaseError::sql(path, error))?;
        // Before any write: a file of another kind must not be changed.
        let found = version_in_transaction(&connection, path, kind).map_err(at)?;
        let failed = |error| DatabaseError::sql(path, error);
        if kind.shrinks && found == 0 {
            vacuum::prepare(&connection).map_err(failed)?;
        }
        enter_wal(&connection, kind).map_err(failed)?;
        if found < kind.newest() {
            migrate(&mut connection, path, kind).map_err(at)?;
        }
        if kind.shrinks {
            vacuum::enable(&connection).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one `BEGIN IMMEDIATE` transaction. If it succeeds, the changes are on disk
    /// when this returns (`synchronous=FULL`); otherwise the transaction is rolled back.
    ///
    /// # Errors
    /// The error that `work` refused with, or [`DatabaseError`] if SQLite failed.
    pub fn write<T, E: From<DatabaseError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
    ) -> Result<T, E> {
        self.write_then(work, |done| done)
    }

    /// As [`Self::write`], then calls `committed` with the result before any other call uses the
    /// connection. So a copy in memory that `committed` updates changes in the order of the
    /// transactions, and a transaction never sees an older one.
    ///
    /// # Errors
    /// As for [`Self::write`]; `committed` was not called.
    pub fn write_then<T, U, E: From<DatabaseError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
        committed: impl FnOnce(T) -> U,
    ) -> Result<U, E> {
        let mut connection = self.lock();
        write(&mut connection, work).map(committed).map_err(|fault| fault.at(&self.path))
    }

    /// Runs `work`, which must only read. It holds the connection: other threads wait until it
    /// returns.
    ///
    /// # Errors
    /// [`DatabaseError`] if SQLite failed.
    pub fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        work(&self.lock()).map_err(|error| DatabaseError::sql(&self.path, error))
    }

    /// Returns at most `pages` free pages to the file system. Returns true if more are free and can
    /// be returned by a further call.
    ///
    /// # Errors
    /// [`DatabaseError`] if SQLite failed.
    pub fn release_pages(&self, pages: u32) -> Result<bool, DatabaseError> {
        vacuum::release(&self.lock(), pages).map_err(|error| DatabaseError::sql(&self.path, error))
    }

    /// Writes a consistent copy to `to`, which must not exist, with mode 0600; it is on disk when
    /// this returns.
    ///
    /// # Errors
    /// [`DatabaseError`] names `to`.
    pub fn snapshot(&self, to: &Path) -> Result<(), DatabaseError> {
        let connection = self.lock();
        let failed = |error| DatabaseError::file(to, error);
        let name = to.to_str().ok_or_else(|| failed(std::io::ErrorKind::InvalidFilename.into()))?;
        // SQLite accepts an empty file as the target; a file that it creates itself gets mode 0644.
        drop(file::create_private_new(to).map_err(failed)?);
        connection
            .execute("VACUUM INTO ?1", [name])
            .map_err(|error| DatabaseError::sql(to, error))?;
        file::sync(to).map_err(failed)
    }

    /// Copies the pages to `to`, which must not exist, with mode 0600, and returns what `read`
    /// finds in them. Faster than [`Self::snapshot`], as nothing is arranged anew or synced; other
    /// calls wait meanwhile.
    ///
    /// # Errors
    /// [`DatabaseError`] names the file.
    pub fn copy<T>(
        &self,
        to: &Path,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        drop(file::create_private_new(to).map_err(|error| DatabaseError::file(to, error))?);
        let connection = self.lock();
        let copied = || {
            let mut copy = Connection::open_with_flags(to, FLAGS)?;
            copy.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;")?;
            let all = -1;
            Backup::new(&connection, &mut copy)?.step(all)
        };
        match copied() {
            Ok(StepResult::Done) => {}
            Ok(_) => return Err(DatabaseError::file(to, std::io::ErrorKind::ResourceBusy.into())),
            Err(error) => return Err(DatabaseError::sql(to, error)),
        }
        read(&connection).map_err(|error| DatabaseError::sql(&self.path, error))
    }

    /// Reads and checks the whole file.
    ///
    /// # Errors
    /// [`DatabaseError::Damaged`] with the first fault found.
    pub fn integrity_check(&self) -> Result<(), DatabaseError> {
        let connection = self.lock();
        let failed = |error| DatabaseError::sql(&self.path, error);
        let found: String = connection
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(failed)?;
        if found != "ok" {
            return Err(DatabaseError::damaged(&self.path, found));
        }
        let mut check = connection.prepare("PRAGMA foreign_key_check").map_err(failed)?;
        if check.exists([]).map_err(failed)? {
            return Err(DatabaseError::damaged(&self.path, "a row refers to one that is missing"));
        }
        Ok(())
    }

    /// A poisoned lock is taken: a panic in a transaction rolls it back, so the connection stays
    /// usable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without `SQLITE_OPEN_URI`, so that no path is parsed as a URI.
pub(crate) const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// How many prepared statements a connection caches: more than any of the databases uses.
const STATEMENTS: usize = 64;

pub(crate) fn configure(connection: &Connection, kind: &Kind) -> rusqlite::Result<()> {
    connection.busy_timeout(kind.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Query plans must not depend on bound values; otherwise each use of a statement beside a
    // partial index recompiles it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if kind.exclusive {
        // Before the first read, which then takes the lock and keeps it.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    // FULL: a commit is on disk when it returns. Temporary tables are in memory, so that no secret
    // is written to /tmp.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
    )
}

/// Switches to WAL, waiting at most `busy_timeout`. Several processes may create one database at
/// the same time, and SQLite's busy handler does not run while the journal mode changes.
fn enter_wal(connection: &Connection, kind: &Kind) -> rusqlite::Result<()> {
    let since = Instant::now();
    loop {
        let mode =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Err(error) if !is_busy(&error) || since.elapsed() >= kind.busy_timeout => {
                return Err(error);
            }
            Ok(_) if since.elapsed() >= kind.busy_timeout => {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
                let text = "this file system cannot hold a write-ahead log".to_owned();
                return Err(rusqlite::Error::SqliteFailure(code, Some(text)));
            }
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// As [`version`], in one transaction, so that a database that another process is creating is not
/// read half.
pub(crate) fn version_in_transaction(
    connection: &Connection,
    path: &Path,
    kind: &Kind,
) -> Result<u32, Fault<DatabaseError>> {
    let reading = connection.unchecked_transaction()?;
    version(&reading, path, kind)
}

/// The schema version of the file, 0 if it is empty.
fn version(connection: &Connection, path: &Path, kind: &Kind) -> Result<u32, Fault<DatabaseError>> {
    let number = |name: &str| {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0))
    };
    let id = number("application_id")?;
    let found = number("user_version")?;
    if id == 0 && found == 0 {
        let mut tables = connection.prepare("SELECT 1 FROM sqlite_schema")?;
        if !tables.exists([])? {
            return Ok(0);
        }
    }
    let path = || path.to_owned();
    let version = u32::try_from(found).ok().filter(|found| *found > 0);
    match version.filter(|_| id == kind.application_id) {
        None => Err(Fault::Refused(DatabaseError::Foreign { path: path() })),
        Some(found) if found > kind.newest() => {
            let known = kind.newest();
            Err(Fault::Refused(DatabaseError::Newer { path: path(), found, known }))
        }
        Some(found) => Ok(found),
    }
}

/// Runs all missing migrations in one transaction, so that a file is never between versions.
fn migrate(
    connection: &mut Connection,
    path: &Path,
    kind: &Kind,
) -> Result<(), Fault<DatabaseError>> {
    write(connection, |tx| {
        // Read again inside the transaction: another process may have migrated meanwhile.
        let found = version(tx, path, kind)?;
        for (version, script) in (1_u32..).zip(kind.migrations) {
            if version > found {
                tx.execute_batch(script)?;
            }
        }
        tx.pragma_update(None, "application_id", kind.application_id)?;
        Ok(tx.pragma_update(None, "user_version", kind.newest())?)
    })
}

fn write<T, E>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
) -> Result<T, Fault<E>> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&tx)?;
    tx.commit()?;
    Ok(done)
}
