//! Which chunks are in the coordinator's memory. The bytes are in the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::PeerId;

/// A peer that does not read keeps a chunk in the cache for at most so long, if another chunk needs
/// the place.
const HOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache of whole chunks. It evicts first the least recently used of those that have all their
/// providers, then those that lack the fewest, and those in use only by [`Cache::evict_used`].
pub(super) struct Cache {
    capacity: usize,
    entries: BTreeMap<u32, Entry>,
    /// Entries that are not in use, by the number of providers that they lack, and by their last
    /// use.
    idle: BTreeSet<(usize, u64, u32)>,
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
    /// Peers that are to provide it, and were sent it, but have not reported it.
    unreported: Vec<PeerId>,
    /// How many providers it lacks.
    lacks: usize,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.sending == 0 && self.unreported.is_empty()
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

    /// Adds a chunk for which `waiting` peers wait, and that lacks so many providers. The caller
    /// has made room.
    pub(super) fn insert(&mut self, index: u32, waiting: usize, lacks: usize, now: Duration) {
        self.entries.insert(index, Entry { waiting, lacks, ..Entry::default() });
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

    /// It has left for a peer that is to provide it: it is in use until that reports it.
    pub(super) fn await_report(&mut self, index: u32, peer: PeerId) {
        self.alter(index, |entry| entry.unreported.push(peer));
    }

    /// A peer has reported it, or is not to provide it any more; it lacks so many providers now.
    pub(super) fn reported(&mut self, index: u32, peer: PeerId, lacks: usize) {
        self.alter(index, |entry| {
            entry.unreported.retain(|other| *other != peer);
            entry.lacks = lacks;
        });
    }

    /// A peer is gone, which is a provider of these chunks no longer.
    pub(super) fn forget(&mut self, peer: PeerId, lacks: impl Fn(u32) -> usize) {
        let all: Vec<u32> = self.entries.keys().copied().collect();
        all.into_iter().for_each(|index| self.reported(index, peer, lacks(index)));
    }

    /// Whether [`Self::evict_idle`] removes a chunk.
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Removes one of the chunks that are not in use.
    pub(super) fn evict_idle(&mut self) -> Option<u32> {
        let (_, _, index) = self.idle.pop_first()?;
        self.entries.remove(&index);
        Some(index)
    }

    /// Removes the least recently used chunk of those that are not leaving and have another copy,
    /// or that have not been used for five seconds.
    pub(super) fn evict_used(
        &mut self,
        now: Duration,
        has_copy: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let is_free = |index: u32, entry: &Entry| entry.sending == 0 && has_copy(index);
        let is_late = |entry: &Entry| entry.used_at + HOLD_TIMEOUT <= now;
        let all = self.entries.iter();
        let open = all.filter(|(index, entry)| is_free(**index, entry) || is_late(entry));
        let index =
            open.min_by_key(|(_, entry)| (entry.lacks, entry.used)).map(|(index, _)| *index)?;
        let entry = self.entries.remove(&index)?;
        self.idle.remove(&(entry.lacks, entry.used, index));
        Some(index)
    }

    /// When [`Self::evict_used`] removes a chunk at the latest; None if there is none.
    pub(super) fn evictable_at(&self) -> Option<Duration> {
        self.entries.values().map(|entry| entry.used_at + HOLD_TIMEOUT).min()
    }

    /// A use of a chunk.
    fn change(&mut self, index: u32, now: Duration, change: impl FnOnce(&mut Entry)) {
        self.uses += 1;
        let used = self.uses;
        self.alter(index, |entry| {
            change(entry);
            (entry.used, entry.used_at) = (used, now);
        });
    }

    fn alter(&mut self, index: u32, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        self.idle.remove(&(entry.lacks, entry.used, index));
        change(entry);
        if entry.is_idle() {
            self.idle.insert((entry.lacks, entry.used, index));
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
        (0..3).for_each(|index| cache.insert(index, 1, 0, NOW));
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
    fn evicts_chunks_that_lack_providers_last() {
        let mut cache = Cache::new(4);
        for (index, lacks) in [(0, 2), (1, 1), (2, 0), (3, 0)] {
            cache.insert(index, 0, lacks, NOW);
        }
        cache.await_report(2, PeerId(7));
        assert_eq!([cache.evict_idle(), cache.evict_idle()], [Some(3), Some(1)]);
        cache.reported(0, PeerId(7), 1);
        cache.reported(2, PeerId(7), 0);
        assert_eq!([(); 3].map(|()| cache.evict_idle()), [Some(2), Some(0), None]);
    }

    #[test]
    fn a_chunk_whose_provider_has_not_reported_it_is_evicted_only_after_a_while() {
        let mut cache = Cache::new(1);
        cache.insert(1, 0, 1, NOW);
        cache.await_report(1, PeerId(7));
        assert_eq!((cache.evict_idle(), cache.evict_used(NOW, |_| false)), (None, None));
        let later = cache.evictable_at().unwrap();
        assert_eq!(cache.evict_used(later, |_| false), Some(1));
        cache.insert(2, 0, 1, NOW);
        cache.await_report(2, PeerId(7));
        cache.forget(PeerId(7), |_| 2);
        assert_eq!(cache.evict_idle(), Some(2));
    }

    #[test]
    fn a_chunk_that_leaves_is_evicted_only_after_a_while() {
        let mut cache = Cache::new(0);
        assert_eq!(cache.capacity(), 1);
        cache.insert(7, 1, 0, NOW);
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
        cache.insert(1, 0, 0, NOW);
        cache.wait(1, NOW);
        assert_eq!((cache.evict_idle(), cache.evict_used(NOW, |_| false)), (None, None));
        assert_eq!(cache.evict_used(NOW, |_| true), Some(1));
    }
}
