//! Limits on what all connections do at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::http::config::Config;
use crate::http::limiter::ConnectionLimiter;

/// The maximum number of concurrent jobs that call the store.
const STORE_CALLS: usize = 64;
/// The maximum number of long request bodies that are read at once: of 64 KiB each, they take
/// 16 MiB.
const LONG_BODIES: usize = 256;
/// The maximum number of concurrent lists with conditions, each of which reads all objects of a
/// type.
const CONDITIONAL_LISTS: usize = 2;

/// The permits for connections, and for what takes long or much memory.
pub(in crate::http) struct Limits {
    pub(in crate::http) connections: Arc<ConnectionLimiter>,
    pub(in crate::http) store_calls: Arc<Semaphore>,
    pub(in crate::http) long_bodies: Arc<Semaphore>,
    pub(in crate::http) conditional_lists: Semaphore,
    pub(in crate::http) watches: Arc<Semaphore>,
}

impl Limits {
    /// The limits of a configuration.
    pub(super) fn new(config: &Config) -> Self {
        let per_source = config.per_source.unwrap_or((config.connections / 2).max(1));
        Self {
            connections: ConnectionLimiter::new(config.connections, per_source),
            store_calls: Arc::new(Semaphore::new(STORE_CALLS)),
            long_bodies: Arc::new(Semaphore::new(LONG_BODIES)),
            conditional_lists: Semaphore::new(CONDITIONAL_LISTS),
            watches: Arc::new(Semaphore::new(config.watches)),
        }
    }
}
