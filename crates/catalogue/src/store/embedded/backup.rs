//! A copy of everything, as a backup holds it, and how it comes back.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use levada_core::Digest;
use levada_database::{Database, file};
use rusqlite::Connection;

use super::{CATALOGUE, DATABASE, Inner, blobs};
use crate::store::StoreError;

/// More than the changes that were ever made between a backup and its return.
const SKIPPED: i64 = 1_000_000_000;

impl Inner {
    pub fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError> {
        let path = to.join(DATABASE);
        self.database.snapshot(&path)?;
        let copy = Database::open(&path, &CATALOGUE)?;
        let digests = copy.write::<_, StoreError>(|tx| Ok(keep_referred(tx)?))?;
        drop(copy);
        let mut missing = Vec::new();
        for digest in digests {
            if !self.copy_blob(&digest, to)? {
                missing.push(digest);
            }
        }
        Ok(missing)
    }

    /// False if the blob is missing. A file in its place is never written again, so a second name for it is a copy.
    fn copy_blob(&self, digest: &Digest, to: &Path) -> Result<bool, StoreError> {
        let from = self.blobs.path(digest);
        let to = blobs::path_in(&to.join(blobs::FOLDER), digest);
        to.parent().map_or(Ok(()), make_folder)?;
        // Another file system, or one without second names.
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
                [SKIPPED],
            )?;
            tx.execute("DELETE FROM change", [])?;
            Ok(())
        })
    }
}

/// The blobs that versions refer to. The others are forgotten: they may be deleted before they are copied.
fn keep_referred(connection: &Connection) -> rusqlite::Result<Vec<Digest>> {
    connection.execute(
        "DELETE FROM blob WHERE NOT EXISTS (SELECT 1 FROM version WHERE package = blob.digest)",
        [],
    )?;
    let mut query = connection.prepare("SELECT digest FROM blob ORDER BY digest")?;
    query.query_map([], |row| row.get(0))?.collect()
}

/// Puts the copy in `from` in the place of the store in `to`, blobs first; what only the old one had is removed by
/// the next start. May be repeated until it has succeeded.
pub(super) fn take_over(from: &Path, to: &Path) -> Result<(), StoreError> {
    let (copies, places) = (from.join(blobs::FOLDER), to.join(blobs::FOLDER));
    make_folder(&places)?;
    for number in 0..=u8::MAX {
        take_over_shard(number, &copies, &places)?;
    }
    file::sync_folder(&places).map_err(|error| StoreError::file(&places, error))?;
    // The old log must go before the new database comes: SQLite would replay it into the new one.
    for end in ["-wal", "-shm", "-journal"] {
        remove(&to.join(format!("{DATABASE}{end}")))?;
    }
    move_file(&from.join(DATABASE), &to.join(DATABASE))?;
    file::sync_folder(to).map_err(|error| StoreError::file(to, error))
}

fn take_over_shard(number: u8, copies: &Path, places: &Path) -> Result<(), StoreError> {
    let [copies, place] = [copies, places].map(|folder| blobs::shard_in(folder, number));
    let failed = |error| StoreError::file(&copies, error);
    let entries = match fs::read_dir(&copies) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed)?,
    };
    let names: Vec<OsString> =
        entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map_err(failed)?;
    make_folder(&place)?;
    for name in names.iter().filter(|name| blobs::digest_of(number, name).is_some()) {
        move_file(&copies.join(name), &place.join(name))?;
    }
    file::sync_folder(&place).map_err(|error| StoreError::file(&place, error))
}

/// Gives a file its place, in another file system too. Its content is on disk then.
fn move_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::file(to, error);
    sync(from).map_err(failed)?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        other => return other.map_err(failed),
    }
    let mut near = to.as_os_str().to_owned();
    near.push(".new");
    let near = PathBuf::from(near);
    let copied = fs::copy(from, &near).and_then(|_| sync(&near));
    copied.and_then(|()| fs::rename(&near, to)).map_err(failed)?;
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

/// With those above it, all for their owner alone.
fn make_folder(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| StoreError::file(path, error))
}
