//! An index in memory of what is requested most: the versions of every object that is shown, the
//! descriptor of its newest version, and the body that the reTHINK compatibility layer answers for
//! it.
//!
//! Readers do not wait while an update is prepared: an object is built outside of all locks and
//! then replaces the previous one. The index follows the changes of the store, and keeps the last
//! ones for clients that follow them.

mod feed;
#[cfg_attr(not(feature = "rethink"), path = "index/without_layer.rs")]
mod layer;
mod object;
mod open;
#[cfg(feature = "rethink")]
mod rethink;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use arc_swap::ArcSwap;
use levada_core::Digest;
use tokio::sync::watch;

use crate::model::{Key, Kind};
use crate::store::Change;
use feed::Feed;
use layer::Layer;
use object::ByKey;

pub use layer::Defaults;
pub use object::{Object, VersionEntry};
pub use open::{Open, Pattern, PatternError};
pub use update::Update;

/// The number of shards. Replacing an object copies one shard, so there are many.
const SHARDS: usize = 256;
type Shard = HashSet<ByKey>;

/// Which part of a store is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which objects are shown.
    pub open: Open,
    /// Names of the reTHINK compatibility layer.
    pub defaults: Defaults,
}

/// The index of a store.
pub struct Index {
    options: Options,
    hasher: RandomState,
    shards: Box<[ArcSwap<Shard>]>,
    /// The number of objects of each kind, in the order of [`Kind::ALL`].
    counts: [AtomicUsize; Kind::ALL.len()],
    /// The media type and the length in bytes of every package that a version refers to. If
    /// versions give it several media types, the object that was published first decides.
    packages: RwLock<HashMap<Digest, (Arc<str>, u64)>>,
    layer: RwLock<Layer>,
    feed: RwLock<Feed>,
    revision: watch::Sender<u64>,
    /// Locked during an update.
    state: Mutex<State>,
}

/// The position of the index in the changes of the store.
#[derive(Clone, Copy, Debug)]
struct State {
    revision: u64,
    /// The order number of the last new object.
    order: u64,
}

impl Index {
    /// The revision of the last change in the index; the receiver is notified of the next.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Whether an object with this key is shown.
    pub fn shows(&self, key: &Key) -> bool {
        self.options.open.shows(key)
    }

    /// The object with this key, if it exists and is shown.
    pub fn object(&self, key: &Key) -> Option<Arc<Object>> {
        self.shard(key).load().get(key).map(|entry| Arc::clone(&entry.0))
    }

    /// The number of objects of each kind.
    pub fn count(&self) -> [(Kind, usize); Kind::ALL.len()] {
        Kind::ALL.map(|kind| (kind, self.counter(kind).load(Ordering::Relaxed)))
    }

    fn counter(&self, kind: Kind) -> &AtomicUsize {
        // The discriminants follow the order of `Kind::ALL`.
        &self.counts[kind as usize]
    }

    /// The media type of a package and its length in bytes, if a version that is shown refers to
    /// it.
    pub fn package(&self, digest: &Digest) -> Option<(Arc<str>, u64)> {
        read(&self.packages).get(digest).cloned()
    }

    /// The changes behind the revision `after`, at most `limit`, and the revision that they reach.
    /// `None` if some of them are no longer in memory.
    pub fn recent(&self, after: u64, limit: usize) -> Option<(Vec<Arc<Change>>, u64)> {
        read(&self.feed).after(after, limit)
    }

    fn shard(&self, key: &Key) -> &ArcSwap<Shard> {
        &self.shards[self.shard_index(key)]
    }

    fn shard_index(&self, key: &Key) -> usize {
        // The number of shards is a power of two below 2^16.
        usize::from(self.hasher.hash_one(key) as u16) % SHARDS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
