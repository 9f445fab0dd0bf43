//! What is asked for most, in memory: of every object that is open its versions, the descriptor of the newest, and the
//! body that the original's layer has for it.
//!
//! Readers never wait for a writer that works: an object is built anew outside of all locks and then put in the place of
//! the one before. The index follows the store by its changes, and whoever follows the index gets them from here.

mod feed;
mod object;
mod open;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use levada_core::Digest;
use tokio::sync::watch;

use crate::model::{Key, Kind};
use crate::rethink::{Answer, Candidate, Catalogue, Conditions, PathType};
use crate::store::{Change, Store, StoreError};
use feed::Feed;
use object::{Building, Named};

pub use object::{Object, VersionEntry};
pub use open::{Open, Pattern, PatternError};
pub use update::Update;

/// So many parts, that replacing one object copies few pointers.
const SHARDS: usize = 256;
/// How many objects are built at once.
const AT_ONCE: usize = 4096;

type Shard = HashSet<Named>;

/// What of a store is shown, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which objects are shown at all.
    pub open: Open,
    /// For each type the names that `default` stands for in the original's layer: the first that is there.
    pub defaults: Vec<(PathType, Vec<String>)>,
}

/// The index of a store.
pub struct Index {
    options: Options,
    hasher: RandomState,
    shards: Box<[ArcSwap<Shard>]>,
    /// How many objects there are, in the order of [`Kind::ALL`].
    counts: [AtomicUsize; Kind::ALL.len()],
    /// The media type of every package that a version refers to, of several that of the object which was there first; and
    /// its length in bytes.
    packages: RwLock<HashMap<Digest, (Arc<str>, u64)>>,
    rethink: RwLock<Catalogue>,
    feed: RwLock<Feed>,
    revision: watch::Sender<u64>,
    /// Held by whoever brings the index up to date.
    state: Mutex<State>,
}

/// How far the index is.
#[derive(Clone, Copy, Debug)]
struct State {
    revision: u64,
    /// The place that the next new object gets among all.
    order: u64,
}

impl Index {
    /// Reads all of `store`.
    ///
    /// # Errors
    /// The store failed.
    pub fn load(store: &dyn Store, options: Options) -> Result<Self, StoreError> {
        let index = Self {
            options,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            counts: Default::default(),
            packages: RwLock::default(),
            rethink: RwLock::default(),
            feed: RwLock::default(),
            revision: watch::Sender::new(0),
            state: Mutex::new(State { revision: 0, order: 0 }),
        };
        index.fill(store, &mut lock(&index.state))?;
        index.catch_up(store)?;
        Ok(index)
    }

    /// The revision of the last change that is in the index; whoever subscribes hears of the next.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Whether an object is shown, if it is there.
    pub fn shows(&self, key: &Key) -> bool {
        self.options.open.shows(key)
    }

    /// An object.
    pub fn object(&self, key: &Key) -> Option<Arc<Object>> {
        self.shard(key).load().get(key).map(|named| Arc::clone(&named.0))
    }

    /// How many objects there are of each kind.
    pub fn count(&self) -> [(Kind, usize); Kind::ALL.len()] {
        Kind::ALL.map(|kind| (kind, self.counter(kind).load(Ordering::Relaxed)))
    }

    fn counter(&self, kind: Kind) -> &AtomicUsize {
        // They are numbered in the order of that list.
        &self.counts[kind as usize]
    }

    /// The media type of a package and its length in bytes, if a version that is shown refers to it.
    pub fn package(&self, digest: &Digest) -> Option<(Arc<str>, u64)> {
        read(&self.packages).get(digest).cloned()
    }

    /// The answer of the original's layer to a path; with `conditions` that to POST.
    pub fn rethink(&self, path: &[u8], conditions: Option<&Conditions>) -> Answer {
        read(&self.rethink).answer(path, conditions)
    }

    /// What a list with conditions may have: see [`Catalogue::candidates`].
    pub fn candidates(&self, kind: Kind, after: Option<&str>, limit: usize) -> Vec<Candidate> {
        read(&self.rethink).candidates(kind, after, limit)
    }

    /// The changes behind `after`, at most `limit`, if they are all in memory; and the revision up to which they go.
    pub fn recent(&self, after: u64, limit: usize) -> Option<(Vec<Arc<Change>>, u64)> {
        read(&self.feed).after(after, limit)
    }

    fn shard(&self, key: &Key) -> &ArcSwap<Shard> {
        &self.shards[self.place(key)]
    }

    fn place(&self, key: &Key) -> usize {
        // The number of shards is a power of two below 2^16.
        usize::from(self.hasher.hash_one(key) as u16) % SHARDS
    }

    /// Builds everything anew.
    fn fill(&self, store: &dyn Store, state: &mut State) -> Result<(), StoreError> {
        let revision = store.revision()?;
        let mut objects: HashMap<Key, Building> = HashMap::new();
        let mut order = 0;
        store.each(&mut |published| {
            if !self.shows(&published.key) {
                return;
            }
            let building = objects.entry(published.key.clone()).or_insert_with(|| {
                order += 1;
                Building::new(order)
            });
            building.add(published);
        })?;
        let mut shards: Vec<Shard> = vec![Shard::new(); self.shards.len()];
        let mut packages = HashMap::new();
        let mut catalogue = Catalogue::new();
        for (of, names) in &self.options.defaults {
            catalogue.set_default(*of, names.clone());
        }
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let mut types = BTreeSet::new();
        let mut objects = objects.into_iter();
        loop {
            // Not all at once: what is needed in between would be as much again.
            let some: Vec<_> = objects.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                break;
            }
            let (built, prepared) = object::build_all(some);
            for mut object in built {
                note_packages(&mut object, &mut types, &mut packages);
                self.counter(object.key.kind).fetch_add(1, Ordering::Relaxed);
                shards[self.place(&object.key)].insert(Named(Arc::new(object)));
            }
            prepared.into_iter().for_each(|one| catalogue.put(one));
        }
        for (place, shard) in self.shards.iter().zip(shards) {
            place.store(Arc::new(shard));
        }
        *write(&self.packages) = packages;
        *write(&self.rethink) = catalogue;
        *write(&self.feed) = Feed::behind(revision);
        *state = State { revision, order };
        self.revision.send_replace(revision);
        Ok(())
    }
}

/// Adds the packages of an object to `packages`. Media types are few: `types` has each once, for both.
fn note_packages(
    object: &mut Object,
    types: &mut BTreeSet<Arc<str>>,
    packages: &mut HashMap<Digest, (Arc<str>, u64)>,
) {
    for ((digest, length), media_type) in object.packages() {
        match types.get(&*media_type) {
            Some(known) => *media_type = Arc::clone(known),
            None => {
                types.insert(Arc::clone(media_type));
            }
        }
        packages.entry(*digest).or_insert_with(|| (Arc::clone(media_type), *length));
    }
}

/// The bytes of a descriptor, shared by all who answer with them.
pub(crate) fn share(bytes: Vec<u8>) -> Bytes {
    // Without room for more, which a vector may have.
    Bytes::from(bytes.into_boxed_slice())
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
