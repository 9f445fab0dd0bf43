//! A peer of a share in mediated mode, as the coordinator knows it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pending::average;

/// The most chunks that wait in the uplink for one peer.
const QUEUE: usize = 4;
/// The number of chunks that are obtained for each peer before it can be sent them.
const PREFETCH: usize = 16;

/// One peer.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its identity, an Ed25519 public key.
    pub identity: [u8; 32],
    /// The number of chunks that it has reported.
    pub chunks: u32,
    /// True once it has reported what it has.
    pub(super) is_present: bool,
    /// The number of chunks that had been obtained when it was told the position of the scan; None
    /// before.
    pub(super) scanning: Option<u64>,
    /// Chunks that it waits for, with the levels that it has asked for.
    pub(super) wanted: BTreeMap<u32, u8>,
    /// The number of these that are in the cache, or on their way into it.
    pub(super) ready: usize,
    /// Chunks in the uplink for it.
    pub(super) sending: Vec<(u32, u8)>,
    /// The number of chunks that it is to receive as their provider.
    pub(super) promised: usize,
    /// The number of chunks that it may report as their provider.
    pub(super) asked: usize,
    /// The number of chunks that are being fetched from it.
    pub(super) fetches: u32,
    /// The time of a fetch, as a moving average.
    pub(super) latency: Duration,
    /// The number of fetches that it has not answered, since the last answer.
    pub(super) failures: u8,
}

impl Member {
    pub(super) fn has_room(&self) -> bool {
        self.sending.len() < QUEUE
    }

    /// Returns true if it waits for a chunk that is to be obtained, and for few others.
    pub(super) fn is_hungry(&self) -> bool {
        self.ready < PREFETCH.min(self.wanted.len())
    }

    /// Returns true if it could be sent a chunk, but none that it waits for is in the cache or on
    /// its way into it.
    pub(super) fn is_starving(&self) -> bool {
        self.has_room() && self.ready == 0 && !self.wanted.is_empty()
    }

    /// It has answered a fetch after this time.
    pub(super) fn answered(&mut self, took: Duration) {
        self.latency = average(self.latency, took);
        self.fetches -= 1;
        self.failures = 0;
    }
}
