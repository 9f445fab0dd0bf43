//! The embedded store of a node: versions in SQLite, blobs as files.
//!
//! The folder contains `catalogue.db` and `blobs/ab/cdef…`, named by digest, all with access for
//! their owner only. The process that has the store open holds an exclusive lock on the database. A
//! row of the database states that a blob exists: it is inserted when the file and its name are on
//! disk, and deleted before the file is. So a crash can leave a file without a row, which the next
//! start removes, and never a row without a file.

mod audit;
mod backup;
mod blobs;
mod collect;
mod examine;
mod feed;
mod files;
mod index;
mod inner;
mod options;
mod outboard;
mod publish;
mod read;
pub(super) mod replica;
mod reserve;
mod row;
mod search;
mod upload;
mod verify;
mod words;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};

use super::{
    AuditEntry, Blob, BlobWriter, Change, Collected, Finding, Hit, Outboard, Outcome, SearchCursor,
    Store, StoreError, Verified,
};
use crate::model::{Draft, Key, Kind, Published, Version};
use inner::CATALOGUE;

pub(super) use inner::Inner;
pub(super) use publish::is_same;
pub(super) use upload::Upload;

pub use blobs::FOLDER as BLOBS;
pub use examine::Examined;
pub use files::{Files, NewFile, SyncAll};
pub use inner::DATABASE;
pub use options::{Disk, Options};

/// A store in a folder. Clones share it; it is closed when the last clone and the last upload are
/// dropped.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, which is created with mode 0700 if it is missing, and holds an
    /// exclusive lock on it until it is dropped. Removes files that a crash left.
    ///
    /// # Errors
    /// [`StoreError`] names the file and the cause.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::open_with(folder, Options::default())
    }

    /// As [`Self::open`], with `options`.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let inner = Inner::open(folder, DATABASE, &CATALOGUE, options)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Prepares a store that was restored from a backup: its revisions continue beyond all that
    /// were used since the backup, so that none is used twice. Clients that follow the changes get
    /// [`StoreError::Compacted`] and read everything again.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written.
    pub fn skip_revisions(&self) -> Result<(), StoreError> {
        self.inner.skip_revisions()
    }

    /// Where the file of a blob is, if it is stored.
    pub fn package_file(&self, digest: &Digest) -> PathBuf {
        self.inner.blobs.path(digest)
    }

    /// Replaces the store in `to` by the backup that [`Store::back_up`] wrote to `from`. The store
    /// must not be open, and need not exist. If the call is interrupted, it must be repeated before
    /// the store is opened.
    ///
    /// # Errors
    /// [`StoreError`] names the file.
    pub fn install_backup(from: &Path, to: &Path) -> Result<(), StoreError> {
        backup::install(from, to)
    }
}

impl Store for EmbeddedStore {
    fn publish(
        &self,
        draft: &Draft,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        self.inner.publish(draft, by, now)
    }

    fn publish_all(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Vec<Outcome>, StoreError> {
        self.inner.publish_all(drafts, by, now)
    }

    fn yank(
        &self,
        key: &Key,
        version: &Version,
        yanked: bool,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        self.inner.reserve.with(|| self.inner.yank(key, version, yanked, by, now))
    }

    fn get(&self, key: &Key, version: &Version) -> Result<Option<Published>, StoreError> {
        self.inner.get(key, version)
    }

    fn versions(&self, key: &Key) -> Result<Vec<Published>, StoreError> {
        self.inner.versions(key)
    }

    fn list(
        &self,
        kind: Option<Kind>,
        prefix: &str,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<Key>, StoreError> {
        self.inner.list(kind, prefix, after, limit)
    }

    fn each(&self, each: &mut dyn FnMut(Published)) -> Result<(), StoreError> {
        self.inner.each(each)
    }

    fn search(
        &self,
        query: &str,
        kind: Option<Kind>,
        after: Option<&SearchCursor>,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        self.inner.search(query, kind, after, limit)
    }

    fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError> {
        self.inner.changes(after, limit)
    }

    fn revision(&self) -> Result<u64, StoreError> {
        self.inner.revision()
    }

    fn begin_blob(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Ok(Box::new(Upload::begin(&self.inner)?))
    }

    fn add_blobs(&self, contents: &[&[u8]]) -> Result<Vec<Digest>, StoreError> {
        self.inner.add_blobs(contents)
    }

    fn open_blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        self.inner.blobs.read(digest)
    }

    fn outboard(&self, digest: &Digest) -> Result<Option<Outboard>, StoreError> {
        self.inner.outboard(digest)
    }

    fn add_outboard(&self, digest: &Digest, outboard: &Outboard) -> Result<(), StoreError> {
        self.inner.add_outboard(digest, outboard)
    }

    fn scratch(&self) -> Option<File> {
        self.inner.blobs.scratch()
    }

    fn replaced(&self) -> u64 {
        self.inner.blobs.replaced()
    }

    fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.inner.has_blob(digest)
    }

    fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError> {
        self.inner.audit(limit, before)
    }

    fn collect(
        &self,
        grace: Duration,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Collected, StoreError> {
        self.inner.reserve.with(|| self.inner.collect(grace, by, now))
    }

    fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError> {
        self.inner.verify(each)
    }

    fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError> {
        self.inner.back_up(to)
    }
}

#[cfg(test)]
mod tests;
