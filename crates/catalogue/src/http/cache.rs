//! What was read or made for an answer, for the next one: bounded in bytes and in number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use levada_core::Digest;

use super::content::Content;
use crate::rethink::PackageRequest;

/// The most that are kept: many of them are open files, of which a process may have 1024 unless more are allowed.
const MAX_ENTRIES: usize = 256;

/// What is kept under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CacheKey {
    /// A package.
    Blob(Digest),
    /// A package, compressed.
    Compressed(Digest),
    /// A descriptor that the index does not have.
    Descriptor(Digest),
    /// A body of the original's layer.
    Package(PackageRequest),
}

/// What is kept.
#[derive(Clone, Debug)]
pub(super) enum Cached {
    /// A content, and the tag of the original's body that it is.
    Content(Content, [u8; 16]),
    /// Compressing it does not pay.
    Incompressible,
}

impl Cached {
    fn cost(&self) -> u64 {
        // Something for the key, too.
        256 + if let Self::Content(content, _) = self { content.cost() } else { 0 }
    }
}

struct Slot {
    cached: Cached,
    stamp: u64,
    cost: u64,
    used: u64,
}

#[derive(Default)]
struct Slots {
    slots: HashMap<CacheKey, Slot>,
    cost: u64,
    clock: u64,
}

/// A cache that forgets what was not used for the longest time.
pub(super) struct Cache {
    limit: u64,
    slots: Mutex<Slots>,
}

impl Cache {
    /// One that holds `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, slots: Mutex::default() }
    }

    /// What is kept, unless it was kept with another `stamp`: that of what comes from a package is
    /// [`Store::replaced`](crate::store::Store::replaced), asked before it was opened.
    pub fn find(&self, key: &CacheKey, stamp: u64) -> Option<Cached> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.clock += 1;
        let now = slots.clock;
        let slot = slots.slots.get_mut(key).filter(|slot| slot.stamp == stamp)?;
        slot.used = now;
        Some(slot.cached.clone())
    }

    /// Keeps it, unless it alone is too much.
    pub fn put(&self, key: CacheKey, stamp: u64, cached: Cached) {
        let cost = cached.cost();
        if cost > self.limit {
            return;
        }
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.clock += 1;
        let used = slots.clock;
        if let Some(old) = slots.slots.insert(key, Slot { cached, stamp, cost, used }) {
            slots.cost -= old.cost;
        }
        slots.cost += cost;
        while slots.cost > self.limit || slots.slots.len() > MAX_ENTRIES {
            slots.forget_oldest();
        }
    }
}

impl Slots {
    fn forget_oldest(&mut self) {
        let oldest =
            self.slots.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
        if let Some(slot) = oldest.and_then(|key| self.slots.remove(&key)) {
            self.cost -= slot.cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Cached {
        Cached::Content(Content::Bytes(vec![0; length].into()), [0; 16])
    }

    #[test]
    fn what_was_not_used_is_forgotten_first() {
        let cache = Cache::new(3 * (1000 + 256));
        let key = |number: u8| CacheKey::Blob([number; 32]);
        (0..3).for_each(|number| cache.put(key(number), 0, content(1000)));
        assert!(cache.find(&key(0), 0).is_some());
        cache.put(key(3), 0, content(1000));
        assert!(cache.find(&key(1), 0).is_none());
        assert!([0, 2, 3].iter().all(|number| cache.find(&key(*number), 0).is_some()));
        cache.put(key(4), 0, content(10_000));
        assert!(cache.find(&key(4), 0).is_none() && cache.find(&key(3), 0).is_some());
    }

    #[test]
    fn what_is_of_another_stamp_is_not_found() {
        let (cache, key) = (Cache::new(10_000), CacheKey::Blob([7; 32]));
        cache.put(key.clone(), 1, content(10));
        assert!(cache.find(&key, 1).is_some() && cache.find(&key, 2).is_none());
        cache.put(key.clone(), 2, content(10));
        assert!(cache.find(&key, 2).is_some());
    }

    #[test]
    fn the_number_is_bounded_too() {
        let cache = Cache::new(u64::MAX);
        for number in 0..2 * MAX_ENTRIES as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            cache.put(CacheKey::Blob(digest), 0, Cached::Incompressible);
        }
        assert_eq!(cache.slots.lock().unwrap().slots.len(), MAX_ENTRIES);
    }
}
