//! Taking over an unpacked backup: identity, configuration, pins and log come back, sessions come
//! back terminated, because what was used or revoked since the backup is unknown.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use levada_core::{Clock, SystemClock};
use thiserror::Error;

use crate::home::Home;
use crate::known::Known;
use crate::store::{Store, StoreError};

/// The files of an unpacked backup.
pub const KEY: &str = "identity.key";
/// See [`KEY`]; may be missing.
pub const CONFIG: &str = "config.toml";
/// See [`KEY`].
pub const NODE_DB: &str = "node.db";
/// See [`KEY`].
pub const KNOWN_DB: &str = "known.db";

/// Why a backup was not taken over.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// A file could not be moved or written.
    #[error("cannot restore {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A database of the backup is not usable.
    #[error("cannot restore: {0}")]
    Store(#[from] StoreError),
}

/// Takes over the backup unpacked in `folder`, which must lie in the file system of `home` and goes
/// away. The caller holds the home's lock, and no database of the home is open. Until the folder is
/// in its place nothing of the home has changed; from then on [`finish_interrupted`] completes it.
///
/// # Errors
/// [`AdoptError`] names the file.
pub fn adopt(home: &Home, folder: &Path) -> Result<(), AdoptError> {
    invalidate(folder)?;
    let pending = pending(home);
    if pending.exists() {
        finish_interrupted(home)?;
    }
    sync(folder)?;
    fs::rename(folder, &pending).map_err(at(&pending))?;
    sync(home.state_folder())?;
    finish_interrupted(home)
}

/// Completes a restore that was cut short after its point of no return.
///
/// # Errors
/// [`AdoptError`] names the file.
pub fn finish_interrupted(home: &Home) -> Result<(), AdoptError> {
    let pending = pending(home);
    if !pending.exists() {
        return Ok(());
    }
    move_database(&pending.join(NODE_DB), &home.node_db())?;
    move_database(&pending.join(KNOWN_DB), &home.known_db())?;
    fs::create_dir_all(home.config_folder()).map_err(at(home.config_folder()))?;
    if pending.join(KEY).exists() {
        // Neither a configuration nor a half-done rotation of before belongs to what comes back.
        remove(&home.config_file())?;
        remove(&home.staged_key_file())?;
    }
    move_config(&pending.join(CONFIG), &home.config_file())?;
    move_file(&pending.join(KEY), &home.key_file())?;
    sync(home.config_folder())?;
    sync(home.state_folder())?;
    fs::remove_dir_all(&pending).map_err(at(&pending))?;
    sync(home.state_folder())
}

fn pending(home: &Home) -> PathBuf {
    home.state_folder().join("restore.pending")
}

/// Opens both databases once: what is not usable is refused before anything changes.
fn invalidate(folder: &Path) -> Result<(), AdoptError> {
    let store = Store::open(&folder.join(NODE_DB))?;
    store.integrity_check()?;
    store.invalidate_sessions("restored from a backup", SystemClock.now())?;
    drop(store);
    Known::open(&folder.join(KNOWN_DB))?.integrity_check()?;
    Ok(())
}

fn move_database(from: &Path, to: &Path) -> Result<(), AdoptError> {
    if !from.exists() {
        return Ok(());
    }
    // The old log must go before the new database comes: SQLite would replay it into the new one.
    for end in ["-wal", "-shm", "-journal"] {
        let mut log = to.as_os_str().to_owned();
        log.push(end);
        remove(Path::new(&log))?;
    }
    move_file(from, to)
}

/// The configuration may lie in another file system: it is copied and renamed there.
fn move_config(from: &Path, to: &Path) -> Result<(), AdoptError> {
    if !from.exists() {
        return Ok(());
    }
    let near = to.with_extension("toml.restored");
    fs::copy(from, &near).map_err(at(&near))?;
    sync(&near)?;
    fs::rename(&near, to).map_err(at(to))?;
    fs::remove_file(from).map_err(at(from))
}

fn move_file(from: &Path, to: &Path) -> Result<(), AdoptError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(to)(error)),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), AdoptError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn sync(path: &Path) -> Result<(), AdoptError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}

fn at(path: &Path) -> impl Fn(io::Error) -> AdoptError {
    let path = path.to_owned();
    move |source| AdoptError::Io { path: path.clone(), source }
}
