//! The store of a catalogue on several nodes: versions in the log of an engine, which all nodes
//! repeat.
//!
//! The engine is NATS JetStream. It orders the changes and has each on the disks of a majority of
//! its servers before it is acknowledged. Each node applies them to a replica, the database of the
//! embedded store, and answers all that is asked from there: also while the engine is away. A
//! change is one record of the log, with what the log is expected to have: of two publications of
//! one version, the engine accepts one.
//!
//! What a node has published it sees at once; what others have published it sees some milliseconds
//! later, and never sees it vanish again.

mod cache;
mod collect;
mod connect;
mod engine;
mod follow;
mod inner;
mod open;
mod options;
mod packages;
mod parts;
mod position;
mod publish;
mod record;
mod snapshot;
mod verify;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};
use tokio::sync::watch;

use super::embedded::replica::{Author, DATABASE, REPLICA};
use super::embedded::{Examined, Inner};
use super::{
    AuditEntry, Blob, BlobWriter, Change, Collected, Finding, Hit, Lag, Outboard, Outcome,
    SearchCursor, Store, StoreError, Verified,
};
use crate::model::{Draft, Key, Kind, Published, Version};
use inner::Cluster;
use packages::ClusterUpload;

pub use options::{Credentials, Options};

/// How long a search waits at most for the words of what was published before.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A node's store of a catalogue on several nodes. Clones share it.
#[derive(Clone)]
pub struct ClusterStore {
    cluster: Arc<Cluster>,
}

impl ClusterStore {
    /// Opens the replica in `folder`, which is created with mode 0700 if it is missing, and begins
    /// to follow the log. A new replica is filled before this returns; an older one is opened
    /// without the engine, too.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used, or if the engine does not answer and the
    /// replica is new.
    pub fn open(folder: &Path, options: &Options) -> Result<Self, StoreError> {
        // In a thread of its own: the caller's may belong to a runtime, where waiting for another
        // one is forbidden.
        let cluster = thread::scope(|scope| {
            let opened = scope.spawn(|| Cluster::open(folder, options)).join();
            opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok(Self { cluster: Arc::new(cluster) })
    }

    /// Checks that [`Self::open`] can open or create the replica in `folder`, which no process has
    /// open, and changes nothing. The engine is not contacted. `None` if there is no replica.
    ///
    /// # Errors
    /// The [`StoreError`] with which [`Self::open`] would fail.
    pub fn examine(folder: &Path) -> Result<Option<Examined>, StoreError> {
        Inner::examine(folder, DATABASE, &REPLICA)
    }

    /// Whether there is a replica in `folder`.
    pub fn exists(folder: &Path) -> bool {
        folder.join(DATABASE).exists()
    }

    /// The last record of the snapshot that the replica was begun with when the store was opened; 0
    /// if it was begun without one, or earlier.
    pub fn begun_with(&self) -> u64 {
        self.cluster.begun_with
    }

    fn author(identity: Option<Identity>, time: UnixTime) -> Author {
        Author { identity, time }
    }
}

impl Store for ClusterStore {
    fn publish(
        &self,
        draft: &Draft,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        let cluster = &self.cluster;
        cluster.block_on(cluster.publish(draft, Self::author(by, now)))
    }

    fn publish_all(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Vec<Outcome>, StoreError> {
        self.publish_each(drafts, by, now).into_iter().collect()
    }

    fn publish_each(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Vec<Result<Outcome, StoreError>> {
        let cluster = &self.cluster;
        cluster.block_on(cluster.publish_each(drafts, Self::author(by, now)))
    }

    fn yank(
        &self,
        key: &Key,
        version: &Version,
        yanked: bool,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError> {
        let cluster = &self.cluster;
        cluster.block_on(cluster.yank(key, version, yanked, Self::author(by, now)))
    }

    fn get(&self, key: &Key, version: &Version) -> Result<Option<Published>, StoreError> {
        self.cluster.local.get(key, version)
    }

    fn versions(&self, key: &Key) -> Result<Vec<Published>, StoreError> {
        self.cluster.local.versions(key)
    }

    fn list(
        &self,
        kind: Option<Kind>,
        prefix: &str,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<Key>, StoreError> {
        self.cluster.local.list(kind, prefix, after, limit)
    }

    fn each(&self, each: &mut dyn FnMut(Published)) -> Result<(), StoreError> {
        self.cluster.local.each(each)
    }

    fn search(
        &self,
        query: &str,
        kind: Option<Kind>,
        after: Option<&SearchCursor>,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        self.cluster.local.index_within(SEARCH_TIMEOUT)?;
        self.cluster.local.search(query, kind, after, limit)
    }

    fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError> {
        match self.cluster.local.changes(after, limit) {
            Err(StoreError::Compacted { after, newest, .. }) if after > newest => {
                Err(StoreError::Behind { after, newest })
            }
            other => other,
        }
    }

    fn revision(&self) -> Result<u64, StoreError> {
        self.cluster.local.revision()
    }

    fn followed(&self) -> Option<watch::Receiver<u64>> {
        Some(self.cluster.revision.clone())
    }

    fn lag(&self) -> Option<Lag> {
        Some(self.cluster.position.borrow().lag())
    }

    fn begin_blob(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
        Ok(Box::new(ClusterUpload::begin(&self.cluster)?))
    }

    fn open_blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError> {
        self.cluster.blob(digest)
    }

    fn outboard(&self, digest: &Digest) -> Result<Option<Outboard>, StoreError> {
        self.cluster.local.outboard(digest)
    }

    fn add_outboard(&self, digest: &Digest, outboard: &Outboard) -> Result<(), StoreError> {
        self.cluster.local.add_outboard(digest, outboard)
    }

    fn scratch(&self) -> Option<File> {
        self.cluster.local.blobs.scratch()
    }

    fn replaced(&self) -> u64 {
        self.cluster.local.blobs.replaced()
    }

    fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.cluster.local.has_blob(digest)
    }

    fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError> {
        self.cluster.local.audit(limit, before)
    }

    fn collect(
        &self,
        grace: Duration,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Collected, StoreError> {
        let cluster = &self.cluster;
        cluster.block_on(cluster.collect(grace, Self::author(by, now)))
    }

    fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError> {
        self.cluster.verify(each)
    }

    fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError> {
        self.cluster.back_up(to)
    }
}
