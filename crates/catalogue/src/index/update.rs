//! Following a store: what has changed is built first, which takes time, and shown then, which takes none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::object::{Building, Named, Object};
use super::{Index, Shard, State, lock, note_packages, write};
use crate::model::Key;
use crate::rethink::Prepared;
use crate::store::{Change, Store, StoreError};

/// How many changes are read at once.
const BATCH: u32 = 256;
/// How many are prepared apart: more are an import, and not for a thread that may have to wait.
const FEW: u32 = 16;

/// Changes of a store, built and not yet shown.
#[derive(Debug)]
pub struct Update {
    /// How far the index was.
    since: State,
    /// How far it will be.
    until: State,
    changes: Vec<Change>,
    objects: Vec<(Object, Option<Prepared>)>,
}

impl Index {
    /// Takes over what has changed in `store` since; to be called when something was published, and now and then if
    /// others write to the store. Returns the revision that the index has then.
    ///
    /// # Errors
    /// The store failed; the index stays as it is, or takes over a part.
    pub fn catch_up(&self, store: &dyn Store) -> Result<u64, StoreError> {
        let mut state = lock(&self.state);
        loop {
            match self.build(store, *state, BATCH) {
                Ok(Some(update)) => self.show(update, &mut state),
                Ok(None) => return Ok(state.revision),
                Err(StoreError::Compacted { .. }) => self.fill(store, &mut state)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The first half of [`Index::catch_up`] for a few changes, on a thread that may be interrupted for long: it holds
    /// none of the index's locks. None if nothing has changed; otherwise [`Index::apply`] is the other half.
    ///
    /// # Errors
    /// The store failed; [`StoreError::Compacted`] if only [`Index::catch_up`] helps.
    pub fn prepare(&self, store: &dyn Store) -> Result<Option<Update>, StoreError> {
        let state = *lock(&self.state);
        self.build(store, state, FEW)
    }

    /// Shows what was prepared, unless somebody else has brought the index further meanwhile. Takes some microseconds
    /// for each object, and waits for whoever is within [`Index::catch_up`]. False if there was, or may be, more.
    pub fn apply(&self, update: Update) -> bool {
        let mut state = lock(&self.state);
        let is_next = update.since.revision == state.revision;
        let is_all = update.changes.len() < FEW as usize;
        if is_next {
            self.show(update, &mut state);
        }
        is_next && is_all
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

    /// One object. None if there is nothing to show.
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
        // As they were published: of equal ones the last is the newest.
        versions.sort_by_key(|version| (version.published, version.revision));
        let known = self.object(key);
        let order = known.as_ref().map_or(state.order + 1, |object| object.order);
        state.order = state.order.max(order);
        let mut building = Building::new(order);
        versions.into_iter().for_each(|version| building.add(version));
        if let Some(newest) = building.newest()
            && let Some(whole) = store.get(key, newest)?
        {
            building.describe(whole.descriptor);
        }
        // The same text of a key wherever it stands.
        let key = known.map_or_else(|| key.clone(), |object| object.key.clone());
        Ok(Some(building.finish(key)))
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
        note_packages(&mut object, &mut BTreeSet::new(), &mut write(&self.packages));
        {
            let mut rethink = write(&self.rethink);
            match prepared {
                Some(prepared) => rethink.put(prepared),
                None => rethink.remove(&object.key),
            }
        }
        let place = self.shard(&object.key);
        // Nobody else writes: the state is held.
        let mut shard = Shard::clone(&place.load());
        let counter = self.counter(object.key.kind);
        if shard.replace(Named(Arc::new(object))).is_none() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        place.store(Arc::new(shard));
    }
}
