//! The store that a node brings along: what is short in SQLite, blobs as files.
//!
//! In one folder lie `catalogue.db` and `blobs/ab/cdef…`, named by digest, all private to their owner. The
//! database is held alone by whoever has the store open. Its rows say which blobs there are: a file gets its
//! row when it is whole and on disk, name and all, and loses its row before it is deleted. So a crash can
//! leave files without a row, which the next start removes, and never a row without a file.

mod audit;
mod backup;
mod blobs;
mod collect;
mod feed;
mod files;
mod publish;
mod read;
mod reserve;
mod row;
mod search;
mod verify;
mod words;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Clock, Digest, Identity, SystemClock, UnixTime};
use levada_database::{Database, Kind as DatabaseKind};

use super::{
    AuditEntry, Blob, BlobWriter, Change, Collected, Finding, Hit, Outcome, SearchCursor, Store,
    StoreError, Verified,
};
use crate::model::{Draft, Key, Kind, Published, Version};
use blobs::{Blobs, Writer};
use reserve::Reserve;

pub use blobs::FOLDER as BLOBS;
pub use files::{Files, NewFile, SyncAll};

/// The name of the database in the store's folder.
pub const DATABASE: &str = "catalogue.db";

const CATALOGUE: DatabaseKind = DatabaseKind {
    application_id: 0x4c76_6374, // "Lvct"
    migrations: &[include_str!("embedded/schema/catalogue-1.sql")],
    exclusive: true,
    busy_timeout: Duration::ZERO,
};

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Tells when a blob was uploaded.
    pub clock: Arc<dyn Clock>,
    /// How many of the last changes are kept at least, for those who follow.
    pub kept_changes: u64,
    /// For tests of what happens when a disk fails; none for the real one.
    pub disk: Option<Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), kept_changes: 65_536, disk: None }
    }
}

/// A disk that is not the operating system's.
#[derive(Clone)]
pub struct Disk {
    /// The name of its virtual file system in SQLite.
    pub vfs: &'static str,
    /// Its files.
    pub files: Arc<dyn Files>,
}

/// A store in a folder. Clones are the same store; it is closed when the last one, and the last writer of
/// a blob, is dropped.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    blobs: Blobs,
    clock: Arc<dyn Clock>,
    kept_changes: u64,
    reserve: Reserve,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, which is made with mode 0700 if it is missing. Holds it alone until it
    /// is dropped. Removes what a crash left behind.
    ///
    /// # Errors
    /// [`StoreError`] names the file and says what is wrong with it.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::open_with(folder, Options::default())
    }

    /// As [`Self::open`], with `options`.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let path = folder.join(DATABASE);
        let (database, files, reserve) = match options.disk {
            None => {
                let database = Database::open(&path, &CATALOGUE)?;
                (database, files::operating_system(), Reserve::open(folder))
            }
            Some(disk) => {
                let database = Database::open_with_vfs(&path, disk.vfs, &CATALOGUE)?;
                (database, disk.files, Reserve::none())
            }
        };
        // The lock on the database guards the blobs, too: nobody else is writing one.
        let blobs = Blobs::open(folder, files)?;
        let Options { clock, kept_changes, .. } = options;
        let inner = Inner { database, blobs, clock, kept_changes, reserve };
        inner.sweep()?;
        inner.show_releases()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// For a store that was put back to what it once was: its revisions go on far beyond those that were given out
    /// since, so that none is used twice, and whoever follows is told to read everything anew.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written.
    pub fn skip_revisions(&self) -> Result<(), StoreError> {
        self.inner.skip_revisions()
    }

    /// Puts what [`Store::back_up`] wrote to `from` in the place of the store in `to`, which nobody has open and
    /// which need not exist. If it is cut off, it is to be repeated before anybody opens that store.
    ///
    /// # Errors
    /// [`StoreError`] names the file.
    pub fn take_over(from: &Path, to: &Path) -> Result<(), StoreError> {
        backup::take_over(from, to)
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
        Ok(Box::new(Writer::begin(&self.inner)?))
    }

    fn add_blobs(&self, contents: &[&[u8]]) -> Result<Vec<Digest>, StoreError> {
        self.inner.add_blobs(contents)
    }

    fn open_blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        self.inner.blobs.read(digest)
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
