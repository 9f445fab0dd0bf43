//! How much may wait in the transport while something urgent could come.

use std::time::{Duration, Instant};

use levada_transport::Transport;

use crate::pace::Pacer;

/// While an interactive stream exists, the transport holds this many microseconds' worth of unsent bytes…
const UNSENT_MICROS: u64 = 2_000;
/// …but at least this many bytes.
const UNSENT_FLOOR: u64 = 16 * 1024;
/// Both are so many times as much until the transport's rate is known. Congestion control raises its rate two- or
/// threefold each round trip at the start, and stops only when that no longer helps: a sender who always runs dry
/// keeps it there, with bbr for good, and a queue and losses in the network are the price.
const AT_FIRST: u64 = 16;
/// The rate is known when so many samples in a row did not exceed the best one by a quarter.
const LEVEL_SAMPLES: u8 = 8;
/// A sample is at least this long, and at least a round trip.
const SAMPLE: Duration = Duration::from_millis(100);

/// How fast the transport takes bytes, and the limit on unsent bytes that follows from it.
pub(crate) struct Rate {
    since: Instant,
    bytes: u64,
    bytes_per_second: u64,
    /// The transport was full at some time in this sample: so the sample says what the transport can do.
    full: bool,
    best: u64,
    /// Samples in a row that were not better than the best.
    level: u8,
    limit: Option<u32>,
    pacer: Pacer,
    pace: Option<u64>,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            bytes_per_second: 0,
            full: false,
            best: 0,
            level: 0,
            limit: None,
            pacer: Pacer::default(),
            pace: None,
        }
    }

    /// The transport takes no more for now.
    pub(crate) fn refused(&mut self) {
        self.full = true;
    }

    pub(crate) fn sent(&mut self, length: usize, rtt: Option<Duration>) {
        self.bytes += length as u64;
        let elapsed = self.since.elapsed();
        if elapsed < SAMPLE.max(rtt.unwrap_or_default()) {
            return;
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
        let measured = self.bytes.saturating_mul(1_000_000) / micros;
        self.bytes_per_second = (self.bytes_per_second * 3 + measured) / 4;
        if self.full {
            self.judge(measured);
            if self.level >= LEVEL_SAMPLES {
                self.pacer.sample(self.bytes, micros, Instant::now());
            }
        }
        (self.bytes, self.full) = (0, false);
        self.since = Instant::now();
    }

    fn judge(&mut self, measured: u64) {
        if measured > self.best.saturating_add(self.best / 4) {
            (self.best, self.level) = (measured, 0);
        } else {
            self.level = self.level.saturating_add(1);
        }
    }

    fn limit_rate(&mut self, transport: &mut dyn Transport, interactive: bool) {
        if !interactive {
            self.pacer = Pacer::default();
        }
        if self.pacer.pace() != self.pace {
            self.pace = self.pacer.pace();
            transport.limit_rate(self.pace);
        }
    }

    /// Tells the transport when the limit has changed by more than a quarter.
    pub(crate) fn limit_unsent(&mut self, transport: &mut dyn Transport, interactive: bool) {
        let wanted = interactive.then(|| {
            let bytes = self.bytes_per_second.saturating_mul(UNSENT_MICROS) / 1_000_000;
            let times = if self.level < LEVEL_SAMPLES { AT_FIRST } else { 1 };
            u32::try_from(bytes.max(UNSENT_FLOOR).saturating_mul(times)).unwrap_or(u32::MAX)
        });
        let near = match (self.limit, wanted) {
            (Some(set), Some(wanted)) => set.abs_diff(wanted) <= set / 4,
            (set, wanted) => set == wanted,
        };
        if !near {
            transport.limit_unsent(wanted);
            self.limit = wanted;
        }
        self.limit_rate(transport, interactive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_known_when_it_no_longer_grows() {
        let mut rate = Rate::new();
        for measured in [100, 200, 400, 410, 390] {
            rate.judge(measured);
        }
        assert_eq!(rate.level, 2);
        rate.judge(600);
        assert_eq!(rate.level, 0);
    }
}
