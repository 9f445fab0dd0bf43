//! The bodies that connections share: read from the store, or made from packages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::Digest;
use tokio::sync::Semaphore;

use crate::http::cache::Cache;
use crate::http::content;
use crate::http::verify::Verifier;

/// The maximum number of bodies that are made from packages at once. Each may take some hundred
/// megabytes while it is made.
const BUILDS: usize = 4;
/// The minimum budget for bodies that are made from packages, in bytes: two of the longest.
const MIN_BUDGET: u64 = 256 * 1024 * 1024;

/// The bodies that were read or made, and the locks of those that are being made.
pub(in crate::http) struct Bodies {
    pub(in crate::http) cache: Cache,
    pub(in crate::http) verifier: Verifier,
    /// For bodies that are made here: the size of the cache, and as much again for bodies that are
    /// only being sent.
    pub(in crate::http) budget: Arc<Semaphore>,
    builds: [Mutex<()>; BUILDS],
}

impl Bodies {
    /// A cache of `cache` bytes, without bodies.
    pub(super) fn new(cache: u64) -> Self {
        Self {
            cache: Cache::new(cache),
            verifier: Verifier::start(),
            budget: content::budget(cache.saturating_mul(2).max(MIN_BUDGET)),
            builds: Default::default(),
        }
    }

    /// Locks the build of a body from the package `digest`. A second request for the same body
    /// waits here, and then finds it in the cache. Unrelated packages may share a lock.
    pub(in crate::http) fn lock_build(&self, digest: &Digest) -> MutexGuard<'_, ()> {
        let build = &self.builds[usize::from(digest[0]) % BUILDS];
        build.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
