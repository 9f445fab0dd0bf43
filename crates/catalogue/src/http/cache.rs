//! A cache of contents that were read from the store or made from it, bounded in bytes and in
//! entries.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use levada_core::Digest;

use super::content::Content;

/// The maximum number of entries. Many are open files, of which a process may have 1024 by default.
const MAX_ENTRIES: usize = 256;

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CacheKey {
    /// A package.
    Blob(Digest),
    /// A package, compressed with gzip.
    Compressed(Digest),
    /// A descriptor that the index does not have.
    Descriptor(Digest),
    /// A body of the reTHINK compatibility layer.
    #[cfg(feature = "rethink")]
    Package(crate::rethink::PackageRequest),
}

/// The value of an entry.
#[derive(Clone, Debug)]
pub(super) enum Cached {
    /// A content, and its [template tag](super::tag::Tag::Template) if it is a body of the reTHINK
    /// compatibility layer.
    Content(Content, [u8; 16]),
    /// Compression saves too little.
    Incompressible,
}

impl Cached {
    fn cost(&self) -> u64 {
        // 256 bytes for key and entry.
        256 + if let Self::Content(content, _) = self { content.cost() } else { 0 }
    }
}

struct Entry {
    cached: Cached,
    generation: u64,
    cost: u64,
    /// The value of [`Entries::clock`] at the last use.
    used: u64,
}

#[derive(Default)]
struct Entries {
    map: HashMap<CacheKey, Entry>,
    /// The sum of the costs, in bytes.
    cost: u64,
    clock: u64,
}

/// A least-recently-used cache.
pub(super) struct Cache {
    limit: u64,
    entries: Mutex<Entries>,
}

impl Cache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, entries: Mutex::default() }
    }

    /// The value of `key`, unless it was stored with another `generation`. For content of a package
    /// that is [`Store::replaced`](crate::store::Store::replaced), read before the package was
    /// opened.
    pub fn find(&self, key: &CacheKey, generation: u64) -> Option<Cached> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let now = entries.clock;
        let entry = entries.map.get_mut(key).filter(|entry| entry.generation == generation)?;
        entry.used = now;
        Some(entry.cached.clone())
    }

    /// Inserts a value, unless it alone exceeds the limit, and evicts the least recently used ones.
    pub fn put(&self, key: CacheKey, generation: u64, cached: Cached) {
        let cost = cached.cost();
        if cost > self.limit {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let used = entries.clock;
        if let Some(old) = entries.map.insert(key, Entry { cached, generation, cost, used }) {
            entries.cost -= old.cost;
        }
        entries.cost += cost;
        while entries.cost > self.limit || entries.map.len() > MAX_ENTRIES {
            entries.evict_oldest();
        }
    }
}

impl Entries {
    fn evict_oldest(&mut self) {
        let oldest =
            self.map.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        if let Some(entry) = oldest.and_then(|key| self.map.remove(&key)) {
            self.cost -= entry.cost;
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
    fn evicts_the_least_recently_used_entry() {
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
    fn does_not_find_an_entry_of_another_generation() {
        let cache = Cache::new(10_000);
        let key = CacheKey::Blob([7; 32]);
        cache.put(key.clone(), 1, content(10));
        assert!(cache.find(&key, 1).is_some() && cache.find(&key, 2).is_none());
        cache.put(key.clone(), 2, content(10));
        assert!(cache.find(&key, 2).is_some());
    }

    #[test]
    fn bounds_the_number_of_entries() {
        let cache = Cache::new(u64::MAX);
        for number in 0..2 * MAX_ENTRIES as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            cache.put(CacheKey::Blob(digest), 0, Cached::Incompressible);
        }
        assert_eq!(cache.entries.lock().unwrap().map.len(), MAX_ENTRIES);
    }
}
