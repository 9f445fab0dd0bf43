//! Which chunks are in the coordinator's memory. The bytes are in the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A peer that does not read keeps a chunk in the cache for at most so long, if another chunk needs the place.
const HOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache of whole chunks that evicts the least recently used, and those in use only by [`Cache::evict_used`].
pub(super) struct Cache {
    capacity: usize,
    entries: BTreeMap<u32, Entry>,
    /// Entries that no peer waits for or is sent, by their last use.
    idle: BTreeSet<(u64, u32)>,
    uses: u64,
}

#[derive(Default)]
struct Entry {
    /// The number of the last use.
    used: u64,
    used_at: Duration,
    /// How many peers wait for it.
    waiting: usize,
    /// To how many peers it is leaving.
    sending: usize,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.sending == 0
    }
}

impl Cache {
    /// An empty cache for `capacity` chunks, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        let (entries, idle) = Default::default();
        Self { capacity: capacity.max(1), entries, idle, uses: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.entries.contains_key(&index)
    }

    /// Adds a chunk for which `waiting` peers wait. The caller has made room.
    pub(super) fn insert(&mut self, index: u32, waiting: usize, now: Duration) {
        self.entries.insert(index, Entry { waiting, ..Entry::default() });
        self.change(index, now, |_| {});
    }

    /// One more peer waits for the chunk.
    pub(super) fn wait(&mut self, index: u32, now: Duration) {
        self.change(index, now, |entry| entry.waiting += 1);
    }

    /// One peer less waits for it.
    pub(super) fn give_up(&mut self, index: u32, now: Duration) {
        self.change(index, now, |entry| entry.waiting = entry.waiting.saturating_sub(1));
    }

    /// It leaves for a peer that has waited.
    pub(super) fn send(&mut self, index: u32, now: Duration) {
        self.change(index, now, |entry| {
            entry.waiting = entry.waiting.saturating_sub(1);
            entry.sending += 1;
        });
    }

    /// It has left. The chunk may have been evicted, and be back.
    pub(super) fn sent(&mut self, index: u32, now: Duration) {
        self.change(index, now, |entry| entry.sending = entry.sending.saturating_sub(1));
    }

    /// Whether [`Self::evict_idle`] removes a chunk.
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Removes the least recently used of the chunks that are not in use.
    pub(super) fn evict_idle(&mut self) -> Option<u32> {
        let (_, index) = self.idle.pop_first()?;
        self.entries.remove(&index);
        Some(index)
    }

    /// Removes the least recently used chunk of those that are not leaving and have another copy, or that have not been used for
    /// five seconds.
    pub(super) fn evict_used(
        &mut self,
        now: Duration,
        has_copy: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let is_free = |index: u32, entry: &Entry| entry.sending == 0 && has_copy(index);
        let is_late = |entry: &Entry| entry.used_at + HOLD_TIMEOUT <= now;
        let all = self.entries.iter();
        let open = all.filter(|(index, entry)| is_free(**index, entry) || is_late(entry));
        let index = open.min_by_key(|(_, entry)| entry.used).map(|(index, _)| *index)?;
        let entry = self.entries.remove(&index)?;
        self.idle.remove(&(entry.used, index));
        Some(index)
    }

    /// When [`Self::evict_used`] removes a chunk at the latest; None if there is none.
    pub(super) fn evictable_at(&self) -> Option<Duration> {
        self.entries.values().map(|entry| entry.used_at + HOLD_TIMEOUT).min()
    }

    fn change(&mut self, index: u32, now: Duration, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        self.idle.remove(&(entry.used, index));
        change(entry);
        self.uses += 1;
        (entry.used, entry.used_at) = (self.uses, now);
        if entry.is_idle() {
            self.idle.insert((entry.used, index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn evicts_the_least_recently_used() {
        let mut cache = Cache::new(3);
        (0..3).for_each(|index| cache.insert(index, 1, NOW));
        assert_eq!(cache.evict_idle(), None);
        for index in [1, 0] {
            cache.send(index, NOW);
            cache.sent(index, NOW);
        }
        cache.give_up(2, NOW);
        assert_eq!([1, 0, 2].map(Some), [(); 3].map(|()| cache.evict_idle()));
        assert_eq!((cache.evict_idle(), cache.len()), (None, 0));
    }

    #[test]
    fn a_chunk_that_leaves_is_evicted_only_after_a_while() {
        let mut cache = Cache::new(0);
        assert_eq!(cache.capacity(), 1);
        cache.insert(7, 1, NOW);
        cache.send(7, NOW);
        assert_eq!((cache.evict_idle(), cache.evict_used(NOW, |_| true)), (None, None));
        let later = cache.evictable_at().unwrap();
        assert_eq!((cache.evict_used(later, |_| false), cache.contains(7)), (Some(7), false));
        cache.sent(7, later);
        assert_eq!((cache.len(), cache.evictable_at()), (0, None));
    }

    #[test]
    fn a_chunk_that_is_only_waited_for_may_be_evicted_at_once() {
        let mut cache = Cache::new(2);
        cache.insert(1, 0, NOW);
        cache.wait(1, NOW);
        assert_eq!((cache.evict_idle(), cache.evict_used(NOW, |_| false)), (None, None));
        assert_eq!(cache.evict_used(NOW, |_| true), Some(1));
    }
}
