//! Taking over an unpacked backup: identity, configuration, pins, log and catalogue come back, sessions come
//! back terminated, because what was used or revoked since the backup is unknown.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore};
use levada_core::{Clock, SystemClock};
use levada_database::file;
use thiserror::Error;

use crate::catalogue;
use crate::config::{Config, ConfigError};
use crate::store::{Store, StoreError};
use levada_client::home::Home;
use levada_client::known::Known;

/// The files of an unpacked backup.
pub const KEY: &str = "identity.key";
/// See [`KEY`]; may be missing.
pub const CONFIG: &str = "config.toml";
/// See [`KEY`].
pub const NODE_DB: &str = "node.db";
/// See [`KEY`].
pub const KNOWN_DB: &str = "known.db";
/// See [`KEY`]; the folder of the catalogue, which may be missing.
pub const CATALOGUE: &str = "catalogue";

/// Why a backup was not taken over.
#[derive(Debug, Error)]
pub enum RestoreError {
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
    /// The catalogue of the backup is not usable, or not to be put in its place.
    #[error("cannot restore the catalogue: {0}")]
    Catalogue(#[from] levada_catalogue::store::StoreError),
    /// The configuration of the backup is not usable.
    #[error("cannot restore: {0}")]
    Config(#[from] ConfigError),
}

/// Takes over the backup unpacked in `folder`, which must lie in the file system of `home` and goes
/// away. The caller holds the home's lock, and no database of the home is open. Until the folder is
/// in its place nothing of the home has changed; from then on [`finish_interrupted`] completes it.
///
/// # Errors
/// [`RestoreError`] names the file.
pub fn restore(home: &Home, folder: &Path) -> Result<(), RestoreError> {
    invalidate(home, folder)?;
    let pending = pending(home);
    if pending.exists() {
        finish_interrupted(home)?;
    }
    for name in [KEY, CONFIG] {
        sync_if_there(&folder.join(name))?;
    }
    sync(folder)?;
    fs::rename(folder, &pending).map_err(at(&pending))?;
    sync(home.state_folder())?;
    finish_interrupted(home)
}

/// Completes a restore that was cut short after its point of no return.
///
/// # Errors
/// [`RestoreError`] names the file.
pub fn finish_interrupted(home: &Home) -> Result<(), RestoreError> {
    let pending = pending(home);
    if !pending.exists() {
        return Ok(());
    }
    // Where it belongs is in the configuration, which must not have been moved yet.
    move_catalogue(&pending, home)?;
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

/// Opens all databases once: what is not usable is refused before anything changes.
fn invalidate(home: &Home, folder: &Path) -> Result<(), RestoreError> {
    let store = Store::open(&folder.join(NODE_DB))?;
    store.integrity_check()?;
    store.invalidate_sessions("restored from a backup", SystemClock.now())?;
    drop(store);
    Known::open(&folder.join(KNOWN_DB))?.integrity_check()?;
    let config = Config::load(&folder.join(CONFIG))?;
    if has_catalogue(folder) {
        // It may lie anywhere, and a folder that cannot be made is known before it is too late.
        let place = catalogue::folder(home, &config);
        file::create_folder(&place).map_err(at(&place))?;
        EmbeddedStore::open(&folder.join(CATALOGUE))?.skip_revisions()?;
    }
    Ok(())
}

/// Whether a backup has a catalogue. One that has none leaves that of the home as it is.
pub fn has_catalogue(folder: &Path) -> bool {
    folder.join(CATALOGUE).join(DATABASE).exists()
}

/// It is moved before the configuration, so a second try finds both here, or the catalogue in its place.
fn move_catalogue(pending: &Path, home: &Home) -> Result<(), RestoreError> {
    if has_catalogue(pending) {
        let config = Config::load(&pending.join(CONFIG))?;
        EmbeddedStore::install_backup(&pending.join(CATALOGUE), &catalogue::folder(home, &config))?;
    }
    Ok(())
}

fn move_database(from: &Path, to: &Path) -> Result<(), RestoreError> {
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
fn move_config(from: &Path, to: &Path) -> Result<(), RestoreError> {
    if !from.exists() {
        return Ok(());
    }
    let near = to.with_extension("toml.restored");
    fs::copy(from, &near).map_err(at(&near))?;
    sync(&near)?;
    fs::rename(&near, to).map_err(at(to))?;
    fs::remove_file(from).map_err(at(from))
}

fn move_file(from: &Path, to: &Path) -> Result<(), RestoreError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(to)(error)),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), RestoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn sync(path: &Path) -> Result<(), RestoreError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
}

fn sync_if_there(path: &Path) -> Result<(), RestoreError> {
    if path.exists() { sync(path) } else { Ok(()) }
}

fn at(path: &Path) -> impl Fn(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::Io { path: path.clone(), source }
}
