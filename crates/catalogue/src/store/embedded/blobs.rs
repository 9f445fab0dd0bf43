//! The files of blobs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use data_encoding::HEXLOWER;
use levada_core::Digest;

use super::files::Files;
use crate::store::{Blob, StoreError};

/// The folder of the blobs in the store's folder.
pub const FOLDER: &str = "blobs";
/// The folder in `blobs` where files are written, and where they are moved before they are deleted.
/// It is emptied at each start.
pub(super) const TEMP: &str = "temp";

/// The files of the blobs of a store.
pub(in crate::store) struct Blobs {
    folder: PathBuf,
    pub files: Arc<dyn Files>,
    /// Locked shared while a file is moved to its path and its row is inserted; locked exclusively
    /// while files are compared with rows, or a row and then its file is deleted.
    placement: RwLock<()>,
    /// Which shards have their name on disk for certain.
    durable: Mutex<[bool; 256]>,
    next_temp: AtomicU64,
    /// How many blobs were uploaded again.
    replaced: AtomicU64,
}

impl Blobs {
    /// Creates the missing folders, and empties the temporary one.
    pub fn open(folder: &Path, files: Arc<dyn Files>) -> Result<Self, StoreError> {
        let blobs = Self {
            folder: folder.join(FOLDER),
            files,
            placement: RwLock::new(()),
            durable: Mutex::new([false; 256]),
            next_temp: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
        };
        let temp = blobs.folder.join(TEMP);
        for path in [&blobs.folder, &temp] {
            blobs.files.make_folder(path).map_err(|error| StoreError::file(path, error))?;
        }
        // Also if nothing was created: an earlier process may have crashed between creation and
        // sync.
        blobs.files.sync_folder(folder).map_err(|error| StoreError::file(folder, error))?;
        for name in blobs.names(&temp)? {
            blobs.remove(&temp.join(name))?;
        }
        Ok(blobs)
    }

    /// The path of a blob. The first two digits of the digest are its folder, the shard, so that no
    /// folder grows too large.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        path_in(&self.folder, digest)
    }

    /// The path of a shard.
    pub fn shard(&self, number: u8) -> PathBuf {
        shard_in(&self.folder, number)
    }

    /// Opens a blob. A file has this name only when it is complete.
    pub fn read(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        let path = self.path(digest);
        self.files.read(&path).map_err(|error| StoreError::file(&path, error))
    }

    /// The names in `folder`; empty if it is missing.
    pub fn names(&self, folder: &Path) -> Result<Vec<OsString>, StoreError> {
        match self.files.names(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|error| StoreError::file(folder, error)),
        }
    }

    /// The names in the folder of the blobs.
    pub fn shard_names(&self) -> Result<Vec<OsString>, StoreError> {
        self.names(&self.folder)
    }

    /// Deletes a file; it may be missing.
    pub fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.files.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| StoreError::file(path, error)),
        }
    }

    /// Moves the file of a blob to the temporary folder, which takes no longer for a long file, and
    /// returns its path there. `None` if it is missing.
    pub fn move_away(&self, digest: &Digest) -> Result<Option<PathBuf>, StoreError> {
        let from = self.path(digest);
        let to = self.temp();
        match self.files.rename(&from, &to) {
            Ok(()) => Ok(Some(to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::file(&from, error)),
        }
    }

    /// To be held while a file is moved to its path and its row is inserted.
    pub fn lock_placement(&self) -> RwLockReadGuard<'_, ()> {
        self.placement.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while no file may be placed.
    pub fn lock_placement_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.placement.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a synced file to its path, durably. An existing file is replaced: its content is the
    /// same, unless it was damaged.
    pub fn place(&self, temp: &Path, digest: &Digest) -> Result<(), StoreError> {
        self.make_shards(&[digest[0]])?;
        let folder = self.shard(digest[0]);
        let path = self.path(digest);
        self.files.rename(temp, &path).map_err(|error| StoreError::file(&path, error))?;
        self.files.sync_folder(&folder).map_err(|error| StoreError::file(&folder, error))
    }

    /// As [`Self::place`] for many files.
    pub fn place_all(&self, moves: &[(PathBuf, Digest)]) -> Result<(), StoreError> {
        let shards: Vec<u8> = moves.iter().map(|(_, digest)| digest[0]).collect();
        self.make_shards(&shards)?;
        let to = |(temp, digest): &(PathBuf, Digest)| (temp.clone(), self.path(digest));
        let moves: Vec<(PathBuf, PathBuf)> = moves.iter().map(to).collect();
        let renamed = self.files.rename_all(&self.folder, &moves);
        renamed.map_err(|error| StoreError::file(&self.folder, error))
    }

    /// Creates the shards with these numbers, durably.
    fn make_shards(&self, numbers: &[u8]) -> Result<(), StoreError> {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let new = numbers.iter().filter(|number| !durable[usize::from(**number)]);
        let new: Vec<u8> = new.copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        for path in new.iter().map(|number| self.shard(*number)) {
            self.files.make_folder(&path).map_err(|error| StoreError::file(&path, error))?;
        }
        // Also if they existed, which does not mean that they are on disk: see `open`.
        let synced = self.files.sync_folder(&self.folder);
        synced.map_err(|error| StoreError::file(&self.folder, error))?;
        new.iter().for_each(|number| durable[usize::from(*number)] = true);
        Ok(())
    }

    /// How many blobs were uploaded again since the store was opened.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Counts blobs that were uploaded again.
    pub fn count_replaced(&self, count: u64) {
        self.replaced.fetch_add(count, Ordering::Relaxed);
    }

    /// The folder of the blobs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An unnamed file for derived data.
    pub fn scratch(&self) -> Option<File> {
        self.files.scratch(&self.folder.join(TEMP))
    }

    /// A new path in the temporary folder.
    pub fn temp(&self) -> PathBuf {
        let number = self.next_temp.fetch_add(1, Ordering::Relaxed);
        self.folder.join(TEMP).join(number.to_string())
    }
}

/// The path of a blob below the folder of the blobs.
pub(super) fn path_in(folder: &Path, digest: &Digest) -> PathBuf {
    shard_in(folder, digest[0]).join(HEXLOWER.encode(&digest[1..]))
}

/// The path of a shard below the folder of the blobs.
pub(super) fn shard_in(folder: &Path, number: u8) -> PathBuf {
    folder.join(HEXLOWER.encode(&[number]))
}

/// The digest whose file is `name` in the shard `number`.
pub(super) fn digest_of(number: u8, name: &OsStr) -> Option<Digest> {
    let mut digest = [number; 32];
    let rest = HEXLOWER.decode(name.to_str()?.as_bytes()).ok()?;
    digest[1..].copy_from_slice(rest.first_chunk::<31>().filter(|_| rest.len() == 31)?);
    Some(digest)
}

/// The number of the shard with this name.
pub(super) fn number_of(name: &OsStr) -> Option<u8> {
    match HEXLOWER.decode(name.to_str()?.as_bytes()).ok()?[..] {
        [number] => Some(number),
        _ => None,
    }
}
