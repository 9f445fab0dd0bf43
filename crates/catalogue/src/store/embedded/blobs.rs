//! Blobs as files, and how one comes to be.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use data_encoding::HEXLOWER;
use levada_core::{Digest, Hasher, sha256};

use super::{Files, Inner, NewFile, row};
use crate::store::{Blob, BlobWriter, StoreError};

/// Where blobs lie in the store's folder.
pub const FOLDER: &str = "blobs";
/// Where they are written, and where they go before they are deleted: in `blobs`, emptied at each start.
pub(super) const TEMP: &str = "temp";

/// The folder of blobs.
pub(super) struct Blobs {
    folder: PathBuf,
    pub files: Arc<dyn Files>,
    /// Shared by those who put a file in its place and then note it; held alone by who compares files
    /// and notes, or removes a note and then its file.
    placing: RwLock<()>,
    /// Which folders below have their name on disk for certain.
    durable: Mutex<[bool; 256]>,
    next: AtomicU64,
    /// How many blobs were stored that were there already.
    replaced: AtomicU64,
}

impl Blobs {
    /// Makes the folders that are missing, and empties the one for files on their way.
    pub fn open(folder: &Path, files: Arc<dyn Files>) -> Result<Self, StoreError> {
        let blobs = Self {
            folder: folder.join(FOLDER),
            files,
            placing: RwLock::new(()),
            durable: Mutex::new([false; 256]),
            next: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
        };
        let temp = blobs.folder.join(TEMP);
        for path in [&blobs.folder, &temp] {
            blobs.files.make_folder(path).map_err(|error| StoreError::file(path, error))?;
        }
        // Also if nothing was made: whoever made it may have been killed before this.
        blobs.files.sync_folder(folder).map_err(|error| StoreError::file(folder, error))?;
        for name in blobs.names(&temp)? {
            blobs.remove(&temp.join(name))?;
        }
        Ok(blobs)
    }

    /// The path of a blob: two digits of its digest are a folder, so that none grows too large.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        path_in(&self.folder, digest)
    }

    pub fn shard(&self, number: u8) -> PathBuf {
        shard_in(&self.folder, number)
    }

    /// The content; whole, if there is any, because a file gets its name when it is.
    pub fn read(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        let path = self.path(digest);
        self.files.read(&path).map_err(|error| StoreError::file(&path, error))
    }

    /// The names in `folder`; none if it is missing.
    pub fn names(&self, folder: &Path) -> Result<Vec<OsString>, StoreError> {
        match self.files.names(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|error| StoreError::file(folder, error)),
        }
    }

    /// The names in the folder of all blobs.
    pub fn folders(&self) -> Result<Vec<OsString>, StoreError> {
        self.names(&self.folder)
    }

    pub fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.files.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| StoreError::file(path, error)),
        }
    }

    /// Takes a file out of its place, which is quick however long it is; where it is now. None if it was
    /// not there.
    pub fn move_away(&self, digest: &Digest) -> Result<Option<PathBuf>, StoreError> {
        let (from, to) = (self.path(digest), self.temp());
        match self.files.rename(&from, &to) {
            Ok(()) => Ok(Some(to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::file(&from, error)),
        }
    }

    /// To be held while a file gets its place and its note.
    pub fn placing(&self) -> RwLockReadGuard<'_, ()> {
        self.placing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while nobody may place a file.
    pub fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.placing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a file that is on disk its place; that is on disk, too, when this returns. One that is there is
    /// replaced: its content is the same, unless it was damaged.
    fn place(&self, temp: &Path, digest: &Digest) -> Result<(), StoreError> {
        self.make_shards(&[digest[0]])?;
        let (folder, path) = (self.shard(digest[0]), self.path(digest));
        self.files.rename(temp, &path).map_err(|error| StoreError::file(&path, error))?;
        self.files.sync_folder(&folder).map_err(|error| StoreError::file(&folder, error))
    }

    /// As [`Self::place`] for many.
    fn place_all(&self, moves: &[(PathBuf, Digest)]) -> Result<(), StoreError> {
        let shards: Vec<u8> = moves.iter().map(|(_, digest)| digest[0]).collect();
        self.make_shards(&shards)?;
        let to = |(temp, digest): &(PathBuf, Digest)| (temp.clone(), self.path(digest));
        let moves: Vec<(PathBuf, PathBuf)> = moves.iter().map(to).collect();
        let renamed = self.files.rename_all(&self.folder, &moves);
        renamed.map_err(|error| StoreError::file(&self.folder, error))
    }

    /// Makes the folders with these numbers, and puts their names on disk.
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
        // Also if they were there, which does not say that they are on disk: see `open`.
        let synced = self.files.sync_folder(&self.folder);
        synced.map_err(|error| StoreError::file(&self.folder, error))?;
        new.iter().for_each(|number| durable[usize::from(*number)] = true);
        Ok(())
    }

    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Relaxed)
    }

    pub fn scratch(&self) -> Option<File> {
        self.files.scratch(&self.folder.join(TEMP))
    }

    fn temp(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.folder.join(TEMP).join(number.to_string())
    }
}

/// A blob that is being uploaded.
pub(super) struct Writer {
    inner: Arc<Inner>,
    path: PathBuf,
    file: Box<dyn NewFile>,
    hash: Hasher,
    length: u64,
    /// A part may be missing.
    broken: bool,
    /// The file has left the place where it was written.
    placed: bool,
}

impl Writer {
    pub fn begin(inner: &Arc<Inner>) -> Result<Self, StoreError> {
        let path = inner.blobs.temp();
        let file =
            inner.blobs.files.create(&path).map_err(|error| StoreError::file(&path, error))?;
        let (inner, hash) = (Arc::clone(inner), Hasher::default());
        Ok(Self { inner, path, file, hash, length: 0, broken: false, placed: false })
    }

    fn failed(&self, error: io::Error) -> StoreError {
        StoreError::file(&self.path, error)
    }
}

impl BlobWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::Broken);
        }
        if let Err(error) = self.file.write(bytes) {
            self.broken = true;
            return Err(self.failed(error));
        }
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError> {
        if self.broken {
            return Err(StoreError::Broken);
        }
        let found = std::mem::take(&mut self.hash).finish();
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            return Err(StoreError::WrongDigest { expected: *expected, found });
        }
        self.file.sync().map_err(|error| self.failed(error))?;
        let placing = self.inner.blobs.placing();
        self.inner.blobs.place(&self.path, &found)?;
        self.placed = true;
        let noted = self.inner.note_blobs([(&found, self.length)]);
        drop(placing);
        if noted.is_err() {
            self.inner.withdraw(&found);
        }
        noted.map(|()| (found, self.length))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.placed {
            // What stays is removed by the next start.
            let _ = self.inner.blobs.files.remove(&self.path);
        }
    }
}

impl Inner {
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError> {
        Ok(self.database.read(|connection| {
            connection.prepare_cached("SELECT 1 FROM blob WHERE digest = ?1")?.exists([digest])
        })?)
    }

    /// Stores many with few syncs; their digests, in order.
    pub fn add_blobs(&self, contents: &[&[u8]]) -> Result<Vec<Digest>, StoreError> {
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        let digests: Vec<Digest> = contents.iter().map(|content| sha256(&[*content])).collect();
        // The same bytes twice are one blob.
        let new: BTreeMap<Digest, &[u8]> =
            digests.iter().copied().zip(contents.iter().copied()).collect();
        let files: Vec<(PathBuf, &[u8])> =
            new.values().map(|content| (self.blobs.temp(), *content)).collect();
        let moves = files.iter().zip(new.keys()).map(|((temp, _), digest)| (temp.clone(), *digest));
        let moves: Vec<(PathBuf, Digest)> = moves.collect();
        let written = self.blobs.files.create_all(&self.blobs.folder, &files);
        let written = written.map_err(|error| StoreError::file(&self.blobs.folder, error));
        let added = written.and_then(|()| self.place_and_note(&moves, &new));
        if added.is_err() {
            // What stays is removed by the next start.
            files.iter().for_each(|(temp, _)| drop(self.blobs.remove(temp)));
        }
        added.map(|()| digests)
    }

    fn place_and_note(
        &self,
        moves: &[(PathBuf, Digest)],
        new: &BTreeMap<Digest, &[u8]>,
    ) -> Result<(), StoreError> {
        let placing = self.blobs.placing();
        let lengths = new.iter().map(|(digest, content)| (digest, content.len() as u64));
        let noted = self.blobs.place_all(moves).and_then(|()| self.note_blobs(lengths));
        drop(placing);
        if noted.is_err() {
            new.keys().for_each(|digest| self.withdraw(digest));
        }
        noted
    }

    fn note_blobs<'a>(
        &self,
        blobs: impl IntoIterator<Item = (&'a Digest, u64)>,
    ) -> Result<(), StoreError> {
        let stored = row::from_time(self.clock.now());
        let replaced = self.database.write::<_, StoreError>(|tx| {
            // Uploaded again: its grace begins again, whatever the clock did.
            let mut again =
                tx.prepare_cached("UPDATE blob SET stored = max(stored, ?2) WHERE digest = ?1")?;
            let mut insert =
                tx.prepare_cached("INSERT INTO blob (digest, length, stored) VALUES (?1, ?2, ?3)")?;
            let mut replaced = 0;
            for (digest, length) in blobs {
                match again.execute((digest, stored))? {
                    0 => drop(insert.execute((digest, row::from_number(length), stored))?),
                    _ => replaced += 1,
                }
            }
            Ok(replaced)
        })?;
        self.blobs.replaced.fetch_add(replaced, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a file that got no row, unless it has one of an earlier upload. What goes wrong here is for the
    /// next sweep.
    fn withdraw(&self, digest: &Digest) {
        let _alone = self.blobs.alone();
        if let Ok(false) = self.has_blob(digest) {
            let _ = self.blobs.remove(&self.blobs.path(digest));
        }
    }
}

/// The path of a blob below the folder of all.
pub(super) fn path_in(folder: &Path, digest: &Digest) -> PathBuf {
    shard_in(folder, digest[0]).join(HEXLOWER.encode(&digest[1..]))
}

pub(super) fn shard_in(folder: &Path, number: u8) -> PathBuf {
    folder.join(HEXLOWER.encode(&[number]))
}

/// The digest whose file has the name `name` in the folder `number`.
pub(super) fn digest_of(number: u8, name: &OsStr) -> Option<Digest> {
    let mut digest = [number; 32];
    let rest = HEXLOWER.decode(name.to_str()?.as_bytes()).ok()?;
    digest[1..].copy_from_slice(rest.first_chunk::<31>().filter(|_| rest.len() == 31)?);
    Some(digest)
}

/// The number of a folder of blobs.
pub(super) fn number_of(name: &OsStr) -> Option<u8> {
    match HEXLOWER.decode(name.to_str()?.as_bytes()).ok()?[..] {
        [number] => Some(number),
        _ => None,
    }
}
