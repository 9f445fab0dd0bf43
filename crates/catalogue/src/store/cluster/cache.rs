//! The folder of blobs as a cache of packages.

use std::collections::{BTreeMap, HashMap};

use levada_core::Digest;

use crate::store::StoreError;
use crate::store::embedded::Inner;

/// Which packages are in the cache, and which of them was used least recently.
pub struct Cache {
    limit: u64,
    length: u64,
    next: u64,
    by_use: BTreeMap<u64, Digest>,
    entries: HashMap<Digest, Cached>,
}

struct Cached {
    used: u64,
    length: u64,
}

impl Cache {
    /// An empty cache of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, length: 0, next: 0, by_use: BTreeMap::new(), entries: HashMap::new() }
    }

    /// Notes that a package is used.
    pub fn touch(&mut self, digest: &Digest) {
        self.next += 1;
        if let Some(entry) = self.entries.get_mut(digest) {
            self.by_use.remove(&entry.used);
            entry.used = self.next;
            self.by_use.insert(self.next, *digest);
        }
    }

    /// Adds a package. Those that are to be removed for it; the new one stays, also if it is longer
    /// than the limit.
    pub fn add(&mut self, digest: Digest, length: u64) -> Vec<Digest> {
        self.remove(&digest);
        self.next += 1;
        self.entries.insert(digest, Cached { used: self.next, length });
        self.by_use.insert(self.next, digest);
        self.length += length;
        let mut removed = Vec::new();
        while self.length > self.limit
            && let Some(oldest) = self.by_use.first_key_value().map(|(_, oldest)| *oldest)
            && oldest != digest
        {
            self.remove(&oldest);
            removed.push(oldest);
        }
        removed
    }

    /// Forgets a package that is deleted.
    pub fn remove(&mut self, digest: &Digest) {
        if let Some(entry) = self.entries.remove(digest) {
            self.by_use.remove(&entry.used);
            self.length -= entry.length;
        }
    }
}

/// The cache of the files that are there, in any order.
pub fn cache_of(local: &Inner, limit: u64) -> Result<Cache, StoreError> {
    let mut cache = Cache::new(limit);
    for (digest, length) in local.files()? {
        for old in cache.add(digest, length) {
            local.blobs.remove(&local.blobs.path(&old))?;
        }
    }
    Ok(cache)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_packages_leave_the_cache() {
        let mut cache = Cache::new(10);
        let digest = |number| [number; 32];
        assert!(cache.add(digest(1), 4).is_empty());
        assert!(cache.add(digest(2), 4).is_empty());
        cache.touch(&digest(1));
        assert_eq!(cache.add(digest(3), 4), [digest(2)]);
        assert_eq!(cache.add(digest(4), 20), [digest(1), digest(3)]);
        assert_eq!(cache.add(digest(5), 1), [digest(4)]);
        assert_eq!(cache.length, 1);
    }
}
