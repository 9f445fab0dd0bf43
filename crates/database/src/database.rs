//! How a database is opened, brought to the newest schema version, read and written.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::error::{DatabaseError, Fault};
use crate::file;

/// What tells the databases of this project apart, and how each is opened.
pub struct Kind {
    /// SQLite's `application_id`: another value means that the file is not ours.
    pub application_id: i32,
    /// One script per schema version, in order. A released one is never changed.
    pub migrations: &'static [&'static str],
    /// One process holds the file for as long as it has it open.
    pub exclusive: bool,
    /// How long to wait for another process.
    pub patience: Duration,
}

impl Kind {
    /// The highest schema version that this build knows.
    fn newest(&self) -> u32 {
        u32::try_from(self.migrations.len()).unwrap_or(u32::MAX)
    }
}

/// An open database.
pub struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Database {
    /// Opens `path`, creates it with mode 0600 if it is missing, and brings it to the newest schema version.
    ///
    /// # Errors
    /// [`DatabaseError`] names the file and says what is wrong with it; a file that is not of this kind, or
    /// newer than this build, stays as it is.
    pub fn open(path: &Path, kind: &Kind) -> Result<Self, DatabaseError> {
        file::create_private(path).map_err(|error| DatabaseError::file(path, error))?;
        Self::set_up(Connection::open_with_flags(path, FLAGS), path, kind)
    }

    /// As [`Self::open`] in another virtual file system of SQLite, where `path` is only a name.
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
        // Before anything is written: a file that is not ours must stay as it is.
        let found = version_at_once(&connection, path, kind).map_err(at)?;
        enter_wal(&connection, kind).map_err(|error| DatabaseError::sql(path, error))?;
        if found < kind.newest() {
            migrate(&mut connection, path, kind).map_err(at)?;
        }
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one `BEGIN IMMEDIATE` transaction. If it succeeds, the changes are on disk when
    /// this returns (`synchronous=FULL`); otherwise nothing has changed.
    ///
    /// # Errors
    /// What `work` refused with, or [`DatabaseError`] if SQLite failed.
    pub fn write<T, E: From<DatabaseError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
    ) -> Result<T, E> {
        let mut connection = self.lock();
        write(&mut connection, work).map_err(|fault| fault.at(&self.path))
    }

    /// Runs `work`, which only reads. Nobody else reads or writes until it returns.
    ///
    /// # Errors
    /// [`DatabaseError`] if SQLite failed.
    pub fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        work(&self.lock()).map_err(|error| DatabaseError::sql(&self.path, error))
    }

    /// Writes a copy as of now to `to`, which must not exist, with mode 0600; it is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`DatabaseError`] names `to`.
    pub fn snapshot(&self, to: &Path) -> Result<(), DatabaseError> {
        let connection = self.lock();
        let failed = |error| DatabaseError::file(to, error);
        let name = to.to_str().ok_or_else(|| failed(std::io::ErrorKind::InvalidFilename.into()))?;
        // SQLite accepts an empty file as the target, and would make its own readable for others.
        drop(file::create_private_new(to).map_err(failed)?);
        connection
            .execute("VACUUM INTO ?1", [name])
            .map_err(|error| DatabaseError::sql(to, error))?;
        file::sync(to).map_err(failed)
    }

    /// Reads the whole file and checks it.
    ///
    /// # Errors
    /// [`DatabaseError::Damaged`] with the first thing found.
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

    /// A panic in the middle of a transaction rolls it back, so the connection is good to use on.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No URIs: a path is a path.
const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// How many compiled statements a connection keeps: more than any of the databases has.
const STATEMENTS: usize = 64;

fn configure(connection: &Connection, kind: &Kind) -> rusqlite::Result<()> {
    connection.busy_timeout(kind.patience)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // A plan never depends on what is bound; otherwise statements next to a partial index are compiled anew each time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if kind.exclusive {
        // First of all: the lock is then taken by the first read and kept.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    // FULL: a commit is on disk when it returns. Temporary tables in memory: secrets stay out of /tmp.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
    )
}

/// Several processes may create one database at the same time. SQLite does not wait by itself when two
/// of them change the journal mode, so this does.
fn enter_wal(connection: &Connection, kind: &Kind) -> rusqlite::Result<()> {
    let since = Instant::now();
    loop {
        let mode =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Err(error) if !is_busy(&error) || since.elapsed() >= kind.patience => {
                return Err(error);
            }
            Ok(_) if since.elapsed() >= kind.patience => {
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

/// As [`version`], in one transaction: what another process is just creating must not be seen half.
fn version_at_once(
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
    let (id, found) = (number("application_id")?, number("user_version")?);
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

/// All missing versions in one transaction: a file is at one version or another, never between.
fn migrate(
    connection: &mut Connection,
    path: &Path,
    kind: &Kind,
) -> Result<(), Fault<DatabaseError>> {
    write(connection, |tx| {
        // Again, inside the transaction: another process may have been faster.
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
