//! How much may wait in the link while something urgent could come.

use std::time::{Duration, Instant};

use levada_link::Link;

/// While an interactive stream exists, the link holds this many microseconds' worth of unsent bytes…
const UNSENT_MICROS: u64 = 2_000;
/// …but at least this many bytes.
const UNSENT_FLOOR: u64 = 16 * 1024;

/// How fast the link takes bytes, and the limit on unsent bytes that follows from it.
pub(crate) struct Rate {
    since: Instant,
    bytes: u64,
    bytes_per_second: u64,
    limit: Option<u32>,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, bytes_per_second: 0, limit: None }
    }

    pub(crate) fn sent(&mut self, length: usize) {
        self.bytes += length as u64;
        let elapsed = self.since.elapsed();
        if elapsed < Duration::from_millis(50) {
            return;
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
        let measured = self.bytes.saturating_mul(1_000_000) / micros;
        self.bytes_per_second = (self.bytes_per_second * 3 + measured) / 4;
        self.bytes = 0;
        self.since = Instant::now();
    }

    /// Tells the link when the limit has changed by more than a quarter.
    pub(crate) fn limit_unsent(&mut self, link: &dyn Link, interactive: bool) {
        let wanted = interactive.then(|| {
            let bytes = self.bytes_per_second.saturating_mul(UNSENT_MICROS) / 1_000_000;
            u32::try_from(bytes.max(UNSENT_FLOOR)).unwrap_or(u32::MAX)
        });
        let near = match (self.limit, wanted) {
            (Some(set), Some(wanted)) => set.abs_diff(wanted) <= set / 4,
            (set, wanted) => set == wanted,
        };
        if !near {
            link.limit_unsent(wanted);
            self.limit = wanted;
        }
    }
}
