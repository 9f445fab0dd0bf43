//! The limit on unsent bytes in the transport while an interactive stream is open.

use std::time::{Duration, Instant};

use levada_transport::Transport;

use crate::pacer::Pacer;

/// The limit on unsent bytes while an interactive stream is open, in microseconds of the
/// transport's rate…
const UNSENT_MICROS: u64 = 2_000;
/// …but at least this many bytes.
const UNSENT_FLOOR: u64 = 16 * 1024;
/// The limit until the transport's rate is known, in microseconds of the rate at which it sends
/// now. At the start, congestion control raises its rate two- or threefold each round trip until
/// that no longer helps. A sender that always runs out of data keeps it in that phase, with bbr
/// forever, which causes queues and losses in the network.
const STARTUP_MICROS: u64 = 32_000;
/// The limit if the transport does not know at which rate it sends now.
const STARTUP_UNSENT: u64 = 256 * 1024;
/// The limit if other connections share the uplink, whose rates change as they come and go.
const SHARED_MICROS: u64 = 10_000;
/// It is at least this many bytes: two packets, since many connections may share a slow uplink.
const SHARED_FLOOR: u64 = 3_000;
/// The time for which a rate is used that was read from the transport.
const REREAD_AFTER: Duration = Duration::from_millis(10);
/// The rate is known when this many samples in a row do not exceed the best one by a quarter.
const PLATEAU_SAMPLES: u8 = 8;
/// The minimum length of a sample; it is also at least one round trip.
const MIN_SAMPLE: Duration = Duration::from_millis(100);

/// The other traffic on a connection's uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// None that a user waits for.
    Bulk,
    /// An interactive stream.
    Interactive,
    /// An interactive stream, and other connections that send as much.
    Shared,
}

/// Measures how fast the transport accepts bytes, and derives the limit on unsent bytes from it.
pub(crate) struct Rate {
    since: Instant,
    bytes: u64,
    /// The bytes of all samples. Below [`UNSENT_FLOOR`] no limit is needed, and a short connection
    /// does without the calls.
    total: u64,
    bytes_per_second: u64,
    /// The transport was full during this sample, so the sample measures its capacity.
    full: bool,
    best: u64,
    /// Samples in a row that did not exceed the best.
    plateau: u8,
    limit: Option<u32>,
    /// The rate at which the transport sends, and when it was read.
    sending: Option<u64>,
    read: Option<Instant>,
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
            sending: None,
            read: None,
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

    /// Sets the transport's limits if the limit on unsent bytes has changed by more than a quarter,
    /// or the pacing rate at all.
    pub(crate) fn limit_unsent(&mut self, transport: &mut dyn Transport, uplink: Uplink) {
        let sending = match self.follows_transport(uplink) {
            true => self.sending_rate(transport),
            false => None,
        };
        let wanted = self.wanted(uplink, sending);
        let near = match (self.limit, wanted) {
            (Some(set), Some(wanted)) => set.abs_diff(wanted) <= set / 4,
            (set, wanted) => set == wanted,
        };
        if !near {
            transport.limit_unsent(wanted);
            self.limit = wanted;
        }
        self.limit_rate(transport, uplink == Uplink::Interactive);
    }

    /// Returns true if the limit depends on the rate at which the transport sends now.
    fn follows_transport(&self, uplink: Uplink) -> bool {
        let is_known = uplink == Uplink::Interactive && self.plateau >= PLATEAU_SAMPLES;
        uplink != Uplink::Bulk && self.total >= UNSENT_FLOOR && !is_known
    }

    /// The rate at which the transport sends, at most [`REREAD_AFTER`] ago.
    fn sending_rate(&mut self, transport: &dyn Transport) -> Option<u64> {
        if self.read.is_none_or(|read| read.elapsed() >= REREAD_AFTER) {
            self.read = Some(Instant::now());
            self.sending = transport.sending_rate();
        }
        self.sending
    }

    /// The limit on unsent bytes, if the transport sends at the rate `sending`.
    fn wanted(&self, uplink: Uplink, sending: Option<u64>) -> Option<u32> {
        if uplink == Uplink::Bulk || self.total < UNSENT_FLOOR {
            return None;
        }
        let limit = if !self.follows_transport(uplink) {
            unsent(self.bytes_per_second, UNSENT_MICROS, UNSENT_FLOOR)
        } else if let Some(sending) = sending {
            match uplink {
                Uplink::Shared => unsent(sending, SHARED_MICROS, SHARED_FLOOR),
                _ => unsent(sending, STARTUP_MICROS, UNSENT_FLOOR),
            }
        } else {
            STARTUP_UNSENT
        };
        Some(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    fn limit_rate(&mut self, transport: &mut dyn Transport, is_paced: bool) {
        if !is_paced {
            self.pacer = Pacer::default();
        }
        if self.pacer.pace() != self.pace {
            self.pace = self.pacer.pace();
            transport.limit_rate(self.pace);
            transport.probe(self.pacer.probes());
        }
    }
}

/// The bytes that a rate carries in `micros` microseconds, at least `floor`.
fn unsent(bytes_per_second: u64, micros: u64, floor: u64) -> u64 {
    let bytes = u128::from(bytes_per_second) * u128::from(micros) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(floor)
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

    /// A sender that has little to send never fills the transport, so that its rate stays unknown.
    #[test]
    fn until_the_rate_is_known_the_limit_follows_that_of_the_transport() {
        let measured = Rate { total: UNSENT_FLOOR, ..Rate::new() };
        let limit = |rate, uplink| measured.wanted(uplink, rate);
        for (rate, interactive, shared) in [
            (None, 256 << 10, 256 << 10),
            (Some(100_000), 16 << 10, 3_000),
            (Some(10_000_000), 320_000, 100_000),
            (Some(u64::MAX / 2), u32::MAX, u32::MAX),
        ] {
            assert_eq!(limit(rate, Uplink::Bulk), None);
            assert_eq!(limit(rate, Uplink::Interactive), Some(interactive), "{rate:?}");
            assert_eq!(limit(rate, Uplink::Shared), Some(shared), "{rate:?}");
        }
    }
}
