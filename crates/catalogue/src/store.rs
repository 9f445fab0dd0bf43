//! Where a catalogue is kept: one trait, the suite that every store must pass (feature `conformance`), and
//! the store that a node brings along.
//!
//! A store is called from any thread, and a call may block: on the disk for the embedded one.

mod answer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod embedded;
mod error;
mod none;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use levada_core::{Digest, Identity, UnixTime};

use crate::model::{Draft, Key, Kind, Published, Version};

pub use answer::{
    Action, AuditEntry, Blob, Change, Collected, Event, Finding, Hit, Outcome, SearchCursor,
    Verified,
};
pub use error::StoreError;
pub use none::NoStore;

/// The most that one call lists; whoever asks for more gets so many.
pub const MAX_PAGE: u32 = 1000;
/// The longest query of a search, in bytes.
pub const MAX_QUERY: usize = 1024;
/// How many words a query may have: 255 characters have no more.
pub const MAX_WORDS: usize = 128;

/// What is published, and the packages behind it.
///
/// A call that changes something is one change: it is on disk when the call returns, and a call that fails
/// has changed nothing. A version that was published never changes, except that it may be yanked.
pub trait Store: Send + Sync {
    /// Publishes `draft` if its version is not there yet. [`Outcome::Same`] if the very same is there,
    /// whoever published it; [`Outcome::Conflict`] if another is.
    ///
    /// # Errors
    /// [`StoreError::Draft`] if it breaks a bound, [`StoreError::NoSuchBlob`] or
    /// [`StoreError::PackageLength`] if its package is not here as it says; or the store failed.
    fn publish(
        &self,
        draft: &Draft,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Outcome, StoreError>;

    /// As [`Self::publish`] for each of `drafts` in order; faster where a store can write many at once.
    ///
    /// # Errors
    /// Those of the first that fails; those before it may be published or not.
    fn publish_all(
        &self,
        drafts: &[Draft],
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Vec<Outcome>, StoreError> {
        drafts.iter().map(|draft| self.publish(draft, by, now)).collect()
    }

    /// Takes a version back, or gives it back if not `yanked`: it stays readable, and nobody is pointed to
    /// it. [`Outcome::Same`] if it was so already.
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

    /// All versions of an object, yanked ones too, ascending by [`precedence`](crate::model::version::precedence), and equal
    /// ones in the order in which they were published; empty if there is no such object. What may be long is
    /// left out: the descriptor of each is empty here.
    ///
    /// # Errors
    /// The store failed.
    fn versions(&self, key: &Key) -> Result<Vec<Published>, StoreError>;

    /// The objects whose name begins with `prefix`, ascending, from the one behind `after`; also those of
    /// which every version is yanked. At most `limit`, and at most [`MAX_PAGE`].
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

    /// Gives every version to `each`, in the order in which they were first published. What is published or
    /// yanked meanwhile may be missing: read [`Self::revision`] before, and follow [`Self::changes`] from
    /// there.
    ///
    /// # Errors
    /// The store failed.
    fn each(&self, each: &mut dyn FnMut(Published)) -> Result<(), StoreError>;

    /// The objects that have every word of `query` in their name, kind, or any string of the descriptor of
    /// their newest version that is not yanked. The last word may be the beginning of one. Those that have
    /// all words in the name come first. No words, no hits. At most `limit`, and at most [`MAX_PAGE`].
    ///
    /// A word is a run of letters and digits; case does not count. `HelloWorld2` is also found as `hello`,
    /// `world` and `2`.
    ///
    /// # Errors
    /// [`StoreError::Query`] if it is longer than [`MAX_QUERY`] or has more than [`MAX_WORDS`];
    /// [`StoreError::Cursor`] if `after` is not of this store; or the store failed.
    fn search(
        &self,
        query: &str,
        kind: Option<Kind>,
        after: Option<&SearchCursor>,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError>;

    /// The changes behind the revision `after`, ascending. At most `limit`, and at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if some of them are not kept any more, or `after` is none of this store's
    /// revisions; or the store failed.
    fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError>;

    /// The revision of the last change; 0 if there was none.
    ///
    /// # Errors
    /// The store failed.
    fn revision(&self) -> Result<u64, StoreError>;

    /// Begins to store a blob. It is visible when [`BlobWriter::finish`] has returned, and never a part of
    /// it. The same bytes twice are one blob.
    ///
    /// # Errors
    /// The store failed.
    fn begin_blob(&self) -> Result<Box<dyn BlobWriter>, StoreError>;

    /// Stores each of `contents` as [`Self::begin_blob`] does one; faster where a store can write many at once. Their
    /// digests, in order.
    ///
    /// # Errors
    /// The store failed; some may be stored then.
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

    /// An empty file without a name, for what is made of what is here and may be made again: it is gone when it is
    /// closed. None if there can be none.
    fn scratch(&self) -> Option<File> {
        None
    }

    /// How often, since the store was opened, a blob was stored that had been there: what somebody read of blobs before
    /// may have been damaged, and is to be read again.
    fn replaced(&self) -> u64 {
        0
    }

    /// Whether a version may refer to this blob.
    ///
    /// # Errors
    /// The store failed.
    fn has_blob(&self, digest: &Digest) -> Result<bool, StoreError>;

    /// The newest entries of the audit log, newest first; those older than the id `before`, if given. At
    /// most `limit`, and at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The store failed.
    fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError>;

    /// Deletes the blobs that no version refers to and that were stored more than `grace` before `now`,
    /// which protects those between upload and publication. Others may go on meanwhile.
    ///
    /// # Errors
    /// The store failed; some may be deleted then.
    fn collect(
        &self,
        grace: Duration,
        by: Option<Identity>,
        now: UnixTime,
    ) -> Result<Collected, StoreError>;

    /// Reads everything and compares every digest and reference; what is wrong goes to `each`. Others may go
    /// on meanwhile, but for the time in which the database checks itself.
    ///
    /// # Errors
    /// The store failed before it was through.
    fn verify(&self, each: &mut dyn FnMut(Finding)) -> Result<Verified, StoreError>;

    /// Writes all that is published, as it is at one moment, into the empty folder `to`: a whole store of this kind.
    /// Others may go on meanwhile. Returns the blobs that versions refer to and that are not here to be copied.
    ///
    /// # Errors
    /// [`StoreError`] if something cannot be read or written; what is in the folder is of no use then.
    fn back_up(&self, to: &Path) -> Result<Vec<Digest>, StoreError>;
}

/// A blob on its way into a store. Dropped without [`Self::finish`] it leaves nothing behind.
pub trait BlobWriter: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// The store failed, as with a full disk; this writer is then of no more use.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Puts the blob on disk under its digest; returns that and its length in bytes.
    ///
    /// # Errors
    /// [`StoreError::WrongDigest`] if it is not `expected`; or the store failed. Nothing is stored then.
    fn finish(self: Box<Self>, expected: Option<&Digest>) -> Result<(Digest, u64), StoreError>;
}
