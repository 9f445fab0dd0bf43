//! Loads the index from a store and follows its changes. Changed objects are built without locks,
//! which takes time, and then shown, which takes microseconds.

use std::collections::{BTreeSet, HashMap};
use std::hash::RandomState;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};

use arc_swap::ArcSwap;
use levada_core::Digest;
use tokio::sync::watch;

use super::feed::Feed;
use super::layer::{self, Prepared};
use super::object::{self, ByKey, Object, ObjectBuilder};
use super::{Index, Options, SHARDS, Shard, State, lock, write};
use crate::model::Key;
use crate::store::{Change, Store, StoreError};

/// How many changes are read at once by [`Index::catch_up`].
const BATCH: u32 = 256;
/// How many changes are read at once by [`Index::prepare`]. More are probably an import, which
/// should not wait for a low-priority thread.
const PREPARE_BATCH: u32 = 16;
/// How many objects are built at once by [`Index::load`].
const LOAD_BATCH: usize = 4096;

/// Changes of a store whose objects are built and not yet shown.
#[derive(Debug)]
pub struct Update {
    /// The position of the index before.
    since: State,
    /// The position of the index afterwards.
    until: State,
    changes: Vec<Change>,
    objects: Vec<(Object, Option<Prepared>)>,
}

impl Index {
    /// Reads the whole store.
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
            layer: RwLock::default(),
            feed: RwLock::default(),
            revision: watch::Sender::new(0),
            state: Mutex::new(State { revision: 0, order: 0 }),
        };
        index.rebuild(store, &mut lock(&index.state))?;
        index.catch_up(store)?;
        Ok(index)
    }

    /// Applies the changes of `store` since the last update. To be called after each publication,
    /// and periodically if other processes write to the store. Returns the revision of the index.
    ///
    /// # Errors
    /// The store failed; some of the changes may be applied.
    pub fn catch_up(&self, store: &dyn Store) -> Result<u64, StoreError> {
        let mut state = lock(&self.state);
        loop {
            match self.build(store, *state, BATCH) {
                Ok(Some(update)) => self.show(update, &mut state),
                Ok(None) => return Ok(state.revision),
                Err(StoreError::Compacted { .. }) => self.rebuild(store, &mut state)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Builds the objects of the next few changes, for [`Index::apply`]. It holds no lock of the
    /// index while it builds, so it can run on a low-priority thread that may be interrupted for
    /// long. `None` if nothing has changed.
    ///
    /// # Errors
    /// The store failed; [`StoreError::Compacted`] if the index must be rebuilt by
    /// [`Index::catch_up`].
    pub fn prepare(&self, store: &dyn Store) -> Result<Option<Update>, StoreError> {
        let state = *lock(&self.state);
        self.build(store, state, PREPARE_BATCH)
    }

    /// Shows a prepared update, unless the index was updated since. Takes some microseconds for
    /// each object, and waits for a running [`Index::catch_up`]. False if the update was dropped,
    /// or there may be more changes.
    pub fn apply(&self, update: Update) -> bool {
        let mut state = lock(&self.state);
        let is_next = update.since.revision == state.revision;
        let is_all = update.changes.len() < PREPARE_BATCH as usize;
        if is_next {
            self.show(update, &mut state);
        }
        is_next && is_all
    }

    /// Rebuilds the index from the whole store.
    fn rebuild(&self, store: &dyn Store, state: &mut State) -> Result<(), StoreError> {
        let revision = store.revision()?;
        let mut objects: HashMap<Key, ObjectBuilder> = HashMap::new();
        let mut order = 0;
        store.each(&mut |published| {
            if !self.shows(&published.key) {
                return;
            }
            let builder = objects.entry(published.key.clone()).or_insert_with(|| {
                order += 1;
                ObjectBuilder::new(order)
            });
            builder.add(published);
        })?;
        let mut shards: Vec<Shard> = vec![Shard::new(); self.shards.len()];
        let mut packages = HashMap::new();
        let mut layer = layer::empty(&self.options.defaults);
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let mut types = BTreeSet::new();
        let mut objects = objects.into_iter();
        loop {
            // In batches, because building needs as much memory again as its input.
            let batch: Vec<_> = objects.by_ref().take(LOAD_BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let (built, prepared) = object::build_all(batch);
            for mut object in built {
                register_packages(&mut object, &mut types, &mut packages);
                self.counter(object.key.kind).fetch_add(1, Ordering::Relaxed);
                shards[self.shard_index(&object.key)].insert(ByKey(Arc::new(object)));
            }
            prepared.into_iter().for_each(|one| layer.put(one));
        }
        for (current, shard) in self.shards.iter().zip(shards) {
            current.store(Arc::new(shard));
        }
        *write(&self.packages) = packages;
        *write(&self.layer) = layer;
        *write(&self.feed) = Feed::starting_at(revision);
        *state = State { revision, order };
        self.revision.send_replace(revision);
        Ok(())
    }

    fn build(
        &self,
        store: &dyn Store,
        since: State,
        limit: u32,
    ) -> Result<Option<Update>, StoreError> {
        let changes = store.changes(since.revision, limit)?;
        let Some(last) = changes.last() else { return Ok(None) };
        let mut until = State { revision: last.revision, ..since };
        let mut objects = Vec::new();
        for key in changes.iter().map(|change| &change.key).collect::<BTreeSet<_>>() {
            objects.extend(self.build_one(store, key, &mut until)?);
        }
        Ok(Some(Update { since, until, changes, objects }))
    }

    /// Builds an object from its versions in the store. `None` if it is not shown, or has no
    /// version.
    fn build_one(
        &self,
        store: &dyn Store,
        key: &Key,
        state: &mut State,
    ) -> Result<Option<(Object, Option<Prepared>)>, StoreError> {
        if !self.shows(key) {
            return Ok(None);
        }
        let mut versions = store.versions(key)?;
        if versions.is_empty() {
            return Ok(None);
        }
        // In the order of publication: of versions with equal precedence, the last published is the
        // newest.
        versions.sort_by_key(|version| (version.published, version.revision));
        let known = self.object(key);
        let order = known.as_ref().map_or(state.order + 1, |object| object.order);
        state.order = state.order.max(order);
        let mut builder = ObjectBuilder::new(order);
        versions.into_iter().for_each(|version| builder.add(version));
        if let Some(newest) = builder.newest()
            && let Some(whole) = store.get(key, newest)?
        {
            builder.set_descriptor(whole.descriptor);
        }
        // Reuses the allocation of the key.
        let key = known.map_or_else(|| key.clone(), |object| object.key.clone());
        Ok(Some(builder.finish(key)))
    }

    fn show(&self, update: Update, state: &mut State) {
        let Update { until, changes, objects, .. } = update;
        objects.into_iter().for_each(|(object, prepared)| self.put(object, prepared));
        let shown = changes.into_iter().filter(|change| self.shows(&change.key));
        write(&self.feed).add(shown, until.revision);
        *state = until;
        self.revision.send_replace(until.revision);
    }

    fn put(&self, mut object: Object, prepared: Option<Prepared>) {
        register_packages(&mut object, &mut BTreeSet::new(), &mut write(&self.packages));
        {
            let mut layer = write(&self.layer);
            match prepared {
                Some(prepared) => layer.put(prepared),
                None => layer.remove(&object.key),
            }
        }
        let current = self.shard(&object.key);
        // `state` is locked, so there is no other writer.
        let mut shard = Shard::clone(&current.load());
        let counter = self.counter(object.key.kind);
        if shard.replace(ByKey(Arc::new(object))).is_none() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        current.store(Arc::new(shard));
    }
}

/// Adds the packages of an object to `packages`. The few media types are shared: `types` has each
/// once.
fn register_packages(
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
