//! The scan: the order in which chunks are obtained.

use std::time::Duration;

/// The number of chunks without a waiting peer that the scan skips at once. A jump is longer.
const NEAR: u32 = 64;
/// The number of chunks that a peer may be behind the scan: it is served in step with the others.
const BEHIND: u32 = 64;
/// The scan jumps when all peers wait for it, and at the latest after this time.
const JUMP_TIMEOUT: Duration = Duration::from_secs(1);

/// The progress of the scan, which repeats after the last chunk.
pub(super) struct Scan {
    /// The number of chunks of the content.
    chunks: u32,
    /// The first of the chunks that are obtained next.
    position: u32,
    /// True once peers were told the position.
    pub(super) is_running: bool,
    /// The number of chunks that were obtained.
    obtained: u64,
    /// The moment at which the last one was asked for.
    obtained_at: Duration,
}

impl Scan {
    /// For a content of `chunks`.
    pub(super) fn new(chunks: u32) -> Self {
        Self { chunks, position: 0, is_running: false, obtained: 0, obtained_at: Duration::ZERO }
    }

    pub(super) fn position(&self) -> u32 {
        self.position
    }

    pub(super) fn obtained(&self) -> u64 {
        self.obtained
    }

    /// A chunk is asked for.
    pub(super) fn obtain(&mut self, now: Duration) {
        self.obtained += 1;
        self.obtained_at = now;
    }

    /// Peers wait for the scan from now on.
    pub(super) fn wait_from(&mut self, now: Duration) {
        self.obtained_at = now;
    }

    /// Moves behind this chunk, unless that is among those served in step behind the scan.
    pub(super) fn pass(&mut self, index: u32) {
        let is_behind = self.is_running && self.distance(index) < BEHIND;
        if !is_behind {
            self.position = (index + 1) % self.chunks.max(1);
        }
    }

    /// The moment at which the scan jumps, or starts, at the latest.
    pub(super) fn jumps_at(&self) -> Duration {
        self.obtained_at + JUMP_TIMEOUT
    }

    /// The first chunk that is served in step. Before the scan, providers are served from the
    /// beginning.
    pub(super) fn start(&self) -> u32 {
        let chunks = self.chunks.max(1);
        let behind = BEHIND.min(chunks - 1);
        if self.is_running { (self.position + chunks - behind) % chunks } else { 0 }
    }

    /// The number of chunks from the first that is served in step to this one.
    pub(super) fn distance(&self, index: u32) -> u32 {
        let chunks = self.chunks.max(1);
        (index + chunks - self.start()) % chunks
    }

    /// Returns true if the scan reaches a chunk soon.
    pub(super) fn is_in_step(&self, index: u32) -> bool {
        !self.is_running || self.distance(index) <= BEHIND + NEAR
    }
}
