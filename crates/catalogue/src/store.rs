//! The storage of a catalogue: the trait [`Store`], the conformance suite for its implementations
//! (feature `conformance`), and the embedded store of a node.
//!
//! A store is called from any thread, and a call may block: the embedded one blocks on the disk.

#[cfg_attr(not(feature = "cluster"), path = "store/without_cluster.rs")]
pub mod cluster;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
// Only a replica of `cluster` uses all of it.
#[cfg_attr(not(feature = "cluster"), allow(dead_code, unused_imports))]
pub mod embedded;
mod error;
mod limits;
mod none;
mod types;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};
use tokio::sync::watch;

use crate::model::{Draft, Key, Kind, Published, Version};

pub use error::StoreError;
pub use limits::{MAX_PAGE, MAX_QUERY, MAX_WORDS};
pub use none::NoStore;
pub use types::{
    Action, AuditEntry, Blob, Change, Collected, Event, Finding, Hit, Lag, Outboard, Outcome,
    SearchCursor, Verified,
};

/// The published versions and their packages.
///
/// A call that changes something is atomic and durable: the change is on disk when the call
/// returns, and a call that fails has changed nothing, but for [`StoreError::Uncertain`]. A
/// published version never changes, except that it can be yanked.
pub trait Store: Send + Sync {
    /// Publishes `draft` if its version does not exist yet. [`Outcome::Same`] if an identical
    /// version exists, by any publisher; [`Outcome::Conflict`] if a different one does.
    ///
    /// # Errors
    /// [`StoreError::Draft`] if it exceeds a limit, [`StoreError::NoSuchBlob`] or
    /// [`StoreError::PackageLength`] if its package is not stored or has another length; or the
    /// store failed.
    fn publish(
        &self,
        draft: &Draft,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError>;

    /// As [`Self::publish`] for each of `drafts` in order; faster if a store can write many at
    /// once.
    ///
    /// # Errors
    /// The error of the first draft that fails; others may be published.
    fn publish_all(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Vec<Outcome>, StoreError> {
        drafts.iter().map(|draft| self.publish(draft, by, now)).collect()
    }

    /// As [`Self::publish_all`], with a result for each of `drafts`: one that fails does not affect
    /// the others.
    fn publish_each(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Vec<Result<Outcome, StoreError>> {
        match self.publish_all(drafts, by, now) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            // One of them failed the whole transaction.
            Err(_) => drafts.iter().map(|draft| self.publish(draft, by, now)).collect(),
        }
    }

    /// Yanks a version, or restores it if not `yanked`. A yanked version stays readable, and is
    /// never selected as the newest. [`Outcome::Same`] if nothing changes.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVersion`]; or the store failed.
    fn yank(
        &self,
        key: &Key,
        version: &Version,
        yanked: bool,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError>;

    /// One version, yanked or not.
    ///
    /// # Errors
    /// The store failed.
    fn get(&self, key: &Key, version: &Version) -> Result<Option<Published>, StoreError>;

    /// All versions of an object, yanked ones too, ascending by
    /// [`precedence`](crate::model::version::precedence); versions of equal precedence are in the
    /// order of publication. Empty if there is no such object. The descriptors are left out,
    /// because they may be long: each is empty.
    ///
    /// # Errors
    /// The store failed.
    fn versions(&self, key: &Key) -> Result<Vec<Published>, StoreError>;

    /// The objects whose name begins with `prefix`, ascending, from the one behind `after`; also
    /// those whose versions are all yanked. At most `limit`, and at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The store failed.
    fn list(
        &self,
        kind: Option<Kind>,
        prefix: &str,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<Key>, StoreError>;

    /// Calls `each` with every version, in the order of publication. Concurrent changes may be
    /// missing: read [`Self::revision`] before, and follow [`Self::changes`] from there.
    ///
    /// # Errors
    /// The store failed.
    fn each(&self, each: &mut dyn FnMut(Published)) -> Result<(), StoreError>;

    /// The objects that have every word of `query` in their name, their kind, or any string of the
    /// descriptor of their newest version that is not yanked. The last word may be a prefix.
    /// Objects with all words in the name come first. A query without words has no hits. At most
    /// `limit`, and at most [`MAX_PAGE`].
    ///
    /// A word is a run of letters and digits, compared without case. `HelloWorld2` is also found as
    /// `hello`, `world` and `2`.
    ///
    /// # Errors
    /// [`StoreError::Query`] if it is longer than [`MAX_QUERY`] or has more than [`MAX_WORDS`]
    /// words; [`StoreError::Cursor`] if `after` is not a cursor of this store; or the store failed.
    fn search(
        &self,
        query: &str,
        kind: Option<Kind>,
        after: Option<&SearchCursor>,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError>;

    /// The changes behind the revision `after`, ascending. At most `limit`, and at most
    /// [`MAX_PAGE`].
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if some of them are no longer stored, or `after` is not a revision
    /// of this store; [`StoreError::Behind`] if it may be one that this node does not have yet; or
    /// the store failed.
    fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError>;

    /// The revision of the last change; 0 before the first.
    ///
    /// # Errors
    /// The store failed.
    fn revision(&self) -> Result<u64, StoreError>;

    /// The revision of the last change, of a store that others change, too: its receiver is
    /// notified of each. `None` if all changes are made by this value.
    fn followed(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// How far the store is behind those that it shares its changes with; `None` if there are none.
    fn lag(&self) -> Option<Lag> {
        None
    }

    /// Starts the upload of a blob. It becomes visible as a whole when [`BlobWriter::finish`]
    /// returns. Identical contents are one blob.
    ///
    /// # Errors
    /// The store failed.
    fn begin_blob(&self) -> Result<Box<dyn BlobWriter>, StoreError>;

    /// Stores each of `contents` as a blob and returns their digests, in order; faster if a store
    /// can write many at once.
    ///
    /// # Errors
    /// The store failed; some blobs may be stored.
    fn add_blobs(&self, contents: &[&[u8]]) -> Result<Vec<Digest>, StoreError> {
        let mut digests = Vec::with_capacity(contents.len());
        for content in contents {
            let mut writer = self.begin_blob()?;
            writer.write(content)?;
            digests.push(writer.finish(None)?.0);
        }
        Ok(digests)
    }

    /// The content of a blob.
    ///
    /// # Errors
    /// The store failed.
    fn open_blob(&self, digest: &Digest) -> Result<Option<Blob>, StoreError>;

    /// The hash tree that was stored for a blob by [`Self::add_outboard`].
    ///
    /// # Errors
    /// The store failed.
    fn outboard(&self, digest: &Digest) -> Result<Option<Outboard>, StoreError>;

    /// Stores the hash tree of a blob until the blob is deleted. Nothing is stored if there is no
    /// such blob.
    ///
    /// # Errors
    /// The store failed.
    fn add_outboard(&self, digest: &Digest, outboard: &Outboard) -> Result<(), StoreError>;

    /// An empty unnamed file for derived data, deleted when it is closed. `None` if the store has
    /// no such files.
    fn scratch(&self) -> Option<File> {
        None
    }

    /// How often a blob was uploaded again since the store was opened. An upload may repair a
    /// damaged blob, so content that was read before must be read again.
    fn replaced(&self) -> u64 {
        0
    }

    /// Whether the blob is stored, so that a version can refer to it.
    ///
    /// # Errors
    /// The store failed.
    fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError>;

    /// The entries of the audit log, newest first, from those before the id `before` if it is
    /// given. At most `limit`, and at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The store failed.
    fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError>;

    /// Deletes the blobs that no version refers to and that were uploaded more than `grace` before
    /// `now`. The grace period protects blobs between upload and publication. Other calls may run
    /// concurrently.
    ///
    /// # Errors
    /// The store failed; some blobs may be deleted.
    fn collect(
        &self,
        grace: Duration,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Collected, StoreError>;

    /// Reads everything, verifies every digest and reference, and calls `each` with every finding.
    /// Other calls may run concurrently, except during the integrity check of the database.
    ///
    /// # Errors
    /// The store failed before the end.
    fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError>;

    /// Writes a consistent snapshot of all versions and their blobs to the empty folder `to`, which
    /// is then a store of this kind. Other calls may run concurrently. Returns the blobs that
    /// versions refer to and that are missing here.
    ///
    /// # Errors
    /// [`StoreError`] if a file cannot be read or written; the content of the folder is then
    /// unusable.
    fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError>;
}

/// An upload of a blob. If it is dropped without [`Self::finish`], nothing is stored.
pub trait BlobWriter: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// The store failed, for example because the disk is full; the writer is then unusable.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Stores the blob durably, and returns its digest and its length in bytes.
    ///
    /// # Errors
    /// [`StoreError::WrongDigest`] if the digest is not `expected`; or the store failed. Nothing is
    /// stored then.
    fn finish(self: Box<Self>, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError>;
}
