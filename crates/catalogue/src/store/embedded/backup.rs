//! Backups: a snapshot of the store, and its installation as a store.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use levada_core::Digest;
use levada_database::{Database, file};
use rusqlite::Connection;

use super::inner::{DATABASE, Inner};
use super::{blobs, index, replica};
use crate::store::StoreError;

/// How many revisions are skipped: more than the number of changes between a backup and its
/// installation.
const SKIPPED_REVISIONS: i64 = 1_000_000_000;

impl Inner {
    pub fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError> {
        let path = to.join(DATABASE);
        self.database.snapshot(&path)?;
        let copy = Database::open(&path, self.kind)?;
        let digests = copy.write::<_, StoreError>(|tx| {
            if self.is_replica() {
                index::update(tx)?;
                replica::make_catalogue(tx)?;
            }
            Ok(delete_unreferenced(tx)?)
        })?;
        drop(copy);
        let mut missing = Vec::new();
        for digest in digests {
            if !self.copy_blob(&digest, to)? {
                missing.push(digest);
            }
        }
        Ok(missing)
    }

    /// Copies or links the file of a blob; false if it is missing. Files are never modified after
    /// they are placed, so a hard link is a copy.
    pub fn copy_blob(&self, digest: &Digest, to: &Path) -> Result<bool, StoreError> {
        let from = self.blobs.path(digest);
        let to = blobs::path_in(&to.join(blobs::FOLDER), digest);
        to.parent().map_or(Ok(()), make_folder)?;
        // Copies if the folders are on different file systems, or hard links are not supported.
        let copied = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
        match copied {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::file(&to, error)),
        }
    }

    pub fn skip_revisions(&self) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute(
                "UPDATE store SET revision = revision + ?1, compacted = revision + ?1",
                [SKIPPED_REVISIONS],
            )?;
            tx.execute("DELETE FROM change", [])?;
            Ok(())
        })
    }
}

/// Deletes the rows of unreferenced blobs, whose files may be collected before they are copied.
/// Returns the other blobs.
fn delete_unreferenced(connection: &Connection) -> rusqlite::Result<Vec<Digest>> {
    connection.execute(
        "DELETE FROM blob WHERE NOT EXISTS (SELECT 1 FROM version WHERE package = blob.digest)",
        [],
    )?;
    let mut query = connection.prepare("SELECT digest FROM blob ORDER BY digest")?;
    query.query_map([], |row| row.get(0))?.collect()
}

/// Replaces the store in `to` by the backup in `from`, blobs first. The next start removes blobs of
/// the old store. May be repeated until it succeeds.
pub(super) fn install(from: &Path, to: &Path) -> Result<(), StoreError> {
    let source = from.join(blobs::FOLDER);
    let target = to.join(blobs::FOLDER);
    make_folder(&target)?;
    for number in 0..=u8::MAX {
        install_shard(number, &source, &target)?;
    }
    file::sync_folder(&target).map_err(|error| StoreError::file(&target, error))?;
    // The old log must be removed first: SQLite would replay it into the new database.
    for end in ["-wal", "-shm", "-journal"] {
        remove(&to.join(format!("{DATABASE}{end}")))?;
    }
    move_file(&from.join(DATABASE), &to.join(DATABASE))?;
    file::sync_folder(to).map_err(|error| StoreError::file(to, error))
}

fn install_shard(number: u8, source: &Path, target: &Path) -> Result<(), StoreError> {
    let [source, target] = [source, target].map(|folder| blobs::shard_in(folder, number));
    let failed = |error| StoreError::file(&source, error);
    let entries = match fs::read_dir(&source) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    let names: Vec<OsString> =
        entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map_err(failed)?;
    make_folder(&target)?;
    for name in names.iter().filter(|name| blobs::digest_of(number, name).is_some()) {
        move_file(&source.join(name), &target.join(name))?;
    }
    file::sync_folder(&target).map_err(|error| StoreError::file(&target, error))
}

/// Moves a file, also to another file system. Its content is synced.
fn move_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::file(to, error);
    sync(from).map_err(failed)?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        other => return other.map_err(failed),
    }
    let mut copy = to.as_os_str().to_owned();
    copy.push(".new");
    let copy = PathBuf::from(copy);
    let copied = fs::copy(from, &copy).and_then(|_| sync(&copy));
    copied.and_then(|()| fs::rename(&copy, to)).map_err(failed)?;
    fs::remove_file(from).map_err(failed)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::file(path, error)),
        _ => Ok(()),
    }
}

/// Creates a folder and its parents, with access for the owner only.
fn make_folder(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| StoreError::file(path, error))
}
