//! Restores an unpacked backup: identity, configuration, pins, audit log and catalogue. Sessions
//! are terminated, because uses and revocations since the backup are unknown.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore};
use levada_core::{Clock, SystemClock};
use levada_database::file;
use thiserror::Error;

use crate::catalogue;
use crate::store::{Store, StoreError};
use levada_config::{Config, ConfigError};
use levada_home::backup::{CATALOGUE, CONFIG, KEY, KNOWN_DB, NODE_DB};
use levada_home::known::Known;
use levada_home::{Home, HomeError, read_key_file};

/// Why a backup was not restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// A file could not be moved or written.
    #[error("cannot restore {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: io::Error,
    },
    /// A database of the backup is unusable.
    #[error("cannot restore: {0}")]
    Store(#[from] StoreError),
    /// The catalogue of the backup is unusable, or could not be moved.
    #[error("cannot restore the catalogue: {0}")]
    Catalogue(#[from] levada_catalogue::store::StoreError),
    /// The key of the backup is unusable.
    #[error("cannot restore: {0}")]
    Key(#[from] HomeError),
    /// The configuration of the backup is unusable.
    #[error("cannot restore: {0}")]
    Config(#[from] ConfigError),
}

/// Restores the backup in `folder`, which must be in the file system of `home`, and which is moved.
/// The caller holds the home's lock, and no database of the home is open. Nothing of the home
/// changes until the folder is renamed into the home; after an interruption from then on,
/// [`finish_interrupted`] completes the restore.
///
/// # Errors
/// [`RestoreError`] names the file.
pub fn restore(home: &Home, folder: &Path) -> Result<(), RestoreError> {
    prepare(home, folder)?;
    let pending = pending(home);
    if pending.exists() {
        finish_interrupted(home)?;
    }
    for name in [KEY, CONFIG] {
        sync_if_exists(&folder.join(name))?;
    }
    sync(folder)?;
    fs::rename(folder, &pending).map_err(at(&pending))?;
    sync(home.state_folder())?;
    finish_interrupted(home)
}

/// Completes a restore that was interrupted after the backup was renamed into the home.
///
/// # Errors
/// [`RestoreError`] names the file.
pub fn finish_interrupted(home: &Home) -> Result<(), RestoreError> {
    let pending = pending(home);
    if !pending.exists() {
        return Ok(());
    }
    // What cannot be used must not replace what can.
    check_interrupted(home)?;
    // Before the configuration is moved, which has the path of the catalogue.
    move_catalogue(&pending, home)?;
    move_database(&pending.join(NODE_DB), &home.node_db())?;
    move_database(&pending.join(KNOWN_DB), &home.known_db())?;
    fs::create_dir_all(home.config_folder()).map_err(at(home.config_folder()))?;
    if pending.join(KEY).exists() {
        // An old configuration or an interrupted rotation does not belong to the restored identity.
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

/// Whether a restore was interrupted after the backup was renamed into the home.
pub fn is_interrupted(home: &Home) -> bool {
    pending(home).exists()
}

/// Checks that the files of an interrupted restore can be used, and changes nothing.
///
/// # Errors
/// [`RestoreError`] names the file.
pub fn check_interrupted(home: &Home) -> Result<(), RestoreError> {
    let pending = pending(home);
    Config::load(&pending.join(CONFIG))?;
    read_key_file(&pending.join(KEY))?;
    let node_db = pending.join(NODE_DB);
    if node_db.exists() {
        Store::examine(&node_db)?;
    }
    let known_db = pending.join(KNOWN_DB);
    if known_db.exists() {
        Known::examine(&known_db)?;
    }
    Ok(())
}

fn pending(home: &Home) -> PathBuf {
    home.state_folder().join("restore.pending")
}

/// Opens and checks all databases before anything changes, and invalidates sessions.
fn prepare(home: &Home, folder: &Path) -> Result<(), RestoreError> {
    let store = Store::open(&folder.join(NODE_DB))?;
    store.integrity_check()?;
    store.invalidate_sessions("restored from a backup", SystemClock.now())?;
    drop(store);
    Known::open(&folder.join(KNOWN_DB))?.integrity_check()?;
    let config = Config::load(&folder.join(CONFIG))?;
    if has_catalogue(folder) {
        // Its folder may be anywhere: it is created now, so that an error comes before any change.
        let target = catalogue::restored_folder(home, &config);
        file::create_folder(&target).map_err(at(&target))?;
        EmbeddedStore::open(&folder.join(CATALOGUE))?.skip_revisions()?;
    }
    Ok(())
}

/// Whether a backup has a catalogue. Without one, that of the home is not changed.
pub fn has_catalogue(folder: &Path) -> bool {
    folder.join(CATALOGUE).join(DATABASE).exists()
}

/// Moves the catalogue. This precedes the move of the configuration, so a second attempt finds the
/// path again.
fn move_catalogue(pending: &Path, home: &Home) -> Result<(), RestoreError> {
    if has_catalogue(pending) {
        let config = Config::load(&pending.join(CONFIG))?;
        let target = catalogue::restored_folder(home, &config);
        EmbeddedStore::install_backup(&pending.join(CATALOGUE), &target)?;
    }
    Ok(())
}

fn move_database(from: &Path, to: &Path) -> Result<(), RestoreError> {
    if !from.exists() {
        return Ok(());
    }
    // The old log is removed before the new database is moved: SQLite would replay it into the new
    // one.
    for end in ["-wal", "-shm", "-journal"] {
        let mut log = to.as_os_str().to_owned();
        log.push(end);
        remove(Path::new(&log))?;
    }
    move_file(from, to)
}

/// Moves the configuration. It may be in another file system, so it is copied there and renamed.
fn move_config(from: &Path, to: &Path) -> Result<(), RestoreError> {
    if !from.exists() {
        return Ok(());
    }
    let staged = to.with_extension("toml.restored");
    fs::copy(from, &staged).map_err(at(&staged))?;
    sync(&staged)?;
    fs::rename(&staged, to).map_err(at(to))?;
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

fn sync_if_exists(path: &Path) -> Result<(), RestoreError> {
    if path.exists() { sync(path) } else { Ok(()) }
}

fn at(path: &Path) -> impl Fn(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |source| RestoreError::Io { path: path.clone(), source }
}
