//! The limit on unsent bytes in the transport while an interactive stream is open.

use std::time::{Duration, Instant};

use levada_transport::Transport;

use crate::pacer::Pacer;

/// The limit on unsent bytes while an interactive stream is open, in microseconds of the transport's rate…
const UNSENT_MICROS: u64 = 2_000;
/// …but at least this many bytes.
const UNSENT_FLOOR: u64 = 16 * 1024;
/// The limit is multiplied by this until the transport's rate is known. At the start, congestion control raises its rate
/// two- or threefold each round trip until that no longer helps. A sender that always runs out of data keeps it in that
/// phase, with bbr forever, which causes queues and losses in the network.
const STARTUP_FACTOR: u64 = 16;
/// The rate is known when this many samples in a row do not exceed the best one by a quarter.
const PLATEAU_SAMPLES: u8 = 8;
/// The minimum length of a sample; it is also at least one round trip.
const MIN_SAMPLE: Duration = Duration::from_millis(100);

/// Measures how fast the transport accepts bytes, and derives the limit on unsent bytes from it.
pub(crate) struct Rate {
    since: Instant,
    bytes: u64,
    /// The bytes of all samples. Below [`UNSENT_FLOOR`] no limit is needed, and a short connection does without the calls.
    total: u64,
    bytes_per_second: u64,
    /// The transport was full during this sample, so the sample measures its capacity.
    full: bool,
    best: u64,
    /// Samples in a row that did not exceed the best.
    plateau: u8,
    limit: Option<u32>,
    pacer: Pacer,
    pace: Option<u64>,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            total: 0,
            bytes_per_second: 0,
            full: false,
            best: 0,
            plateau: 0,
            limit: None,
            pacer: Pacer::default(),
            pace: None,
        }
    }

    /// The transport refused a write.
    pub(crate) fn on_blocked(&mut self) {
        self.full = true;
    }

    /// The transport accepted `length` bytes.
    pub(crate) fn on_sent(&mut self, length: usize, rtt: Option<Duration>) {
        self.bytes += length as u64;
        self.total += length as u64;
        let elapsed = self.since.elapsed();
        if elapsed < MIN_SAMPLE.max(rtt.unwrap_or_default()) {
            return;
        }
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
        let measured = self.bytes.saturating_mul(1_000_000) / micros;
        self.bytes_per_second = (self.bytes_per_second * 3 + measured) / 4;
        if self.full {
            self.detect_plateau(measured);
            if self.plateau >= PLATEAU_SAMPLES {
                self.pacer.sample(self.bytes, micros, Instant::now());
            }
        }
        (self.bytes, self.full) = (0, false);
        self.since = Instant::now();
    }

    /// Counts samples since the rate last grew by a quarter.
    fn detect_plateau(&mut self, measured: u64) {
        if measured > self.best.saturating_add(self.best / 4) {
            (self.best, self.plateau) = (measured, 0);
        } else {
            self.plateau = self.plateau.saturating_add(1);
        }
    }

    fn limit_rate(&mut self, transport: &mut dyn Transport, interactive: bool) {
        if !interactive {
            self.pacer = Pacer::default();
        }
        if self.pacer.pace() != self.pace {
            self.pace = self.pacer.pace();
            transport.limit_rate(self.pace);
            transport.probe(self.pacer.probes());
        }
    }

    /// Sets the transport's limits if the limit on unsent bytes has changed by more than a quarter, or the pacing rate at all.
    pub(crate) fn limit_unsent(&mut self, transport: &mut dyn Transport, interactive: bool) {
        let wanted = (interactive && self.total >= UNSENT_FLOOR).then(|| {
            let bytes = self.bytes_per_second.saturating_mul(UNSENT_MICROS) / 1_000_000;
            let times = if self.plateau < PLATEAU_SAMPLES { STARTUP_FACTOR } else { 1 };
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
    fn a_rate_that_no_longer_grows_is_a_plateau() {
        let mut rate = Rate::new();
        for measured in [100, 200, 400, 410, 390] {
            rate.detect_plateau(measured);
        }
        assert_eq!(rate.plateau, 2);
        rate.detect_plateau(600);
        assert_eq!(rate.plateau, 0);
    }
}
