//! Counters of a coordinator in mediated mode.

use std::time::Duration;

/// The work that a coordinator has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chunks requested from providers.
    pub fetches: u64,
    /// Chunks sent to peers.
    pub sent: u64,
    /// Chunks read from the source.
    pub loads: u64,
    /// Of these, those that were read before, since no peer that has them was known.
    pub source_reads: u64,
    /// The moment at which every chunk had left the coordinator once: the end of the distribution.
    /// `None` before.
    pub distributed: Option<Duration>,
}

impl Counters {
    /// Chunks that were sent from the cache, and neither fetched nor read for that.
    pub fn cache_hits(&self) -> u64 {
        self.sent.saturating_sub(self.fetches + self.loads)
    }
}
