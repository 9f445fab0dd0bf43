//! The pacing rate of the transport while an interactive stream is open.
//!
//! Congestion control probes for more bandwidth than the network has: bbr sends a quarter more in
//! one of eight round trips. The excess waits in a queue in front of interactive data, for 10 ms at
//! a round trip of 40 ms. Just below the transport's rate there is no queue.

use std::time::{Duration, Instant};

/// The pacing rate, in percent of the measured rate. The difference exceeds the error of the
/// measurement, which bytes left in buffers cause.
const PACE_PERCENT: u64 = 97;
/// How many samples of a full transport are measured…
const MEASURED_SAMPLES: u8 = 10;
/// …after this many, in which buffers still fill or drain.
const SETTLING_SAMPLES: u8 = 3;
/// The rate is measured again after this time, unpaced, because it may have changed. A transport
/// that became faster is used in full only then.
const REMEASURE_AFTER: Duration = Duration::from_secs(60);
/// No pacing above this rate, in bytes per second: such a transport drains its queues fast, and the
/// timers of pacing would cost more than they gain. One gigabit per second is below.
const MAX_PACED_RATE: u64 = 150_000_000;
/// The rate is measured again after this many samples in a row below nine tenths of the pacing
/// rate.
const SLOW_SAMPLES: u8 = 3;

/// Measures the transport's rate from time to time, and computes the pacing rate from it.
#[derive(Default)]
pub(crate) struct Pacer {
    samples: u8,
    bytes: u64,
    micros: u64,
    /// The pacing rate in bytes per second, and since when it applies.
    paced: Option<(u64, Instant)>,
    slow: u8,
    /// The rate fell while it was paced.
    fell: bool,
}

impl Pacer {
    /// Adds a sample: a full transport accepted `bytes` in `micros` microseconds.
    pub(crate) fn sample(&mut self, bytes: u64, micros: u64, now: Instant) {
        match self.paced {
            None => self.measure(bytes, micros, now),
            Some((pace, since)) => {
                let slow = bytes.saturating_mul(10_000_000) < pace.saturating_mul(9 * micros);
                self.slow = if slow { self.slow + 1 } else { 0 };
                let fell = self.slow == SLOW_SAMPLES;
                if fell || now.duration_since(since) > REMEASURE_AFTER {
                    *self = Self { fell: self.fell || fell, ..Self::default() };
                }
            }
        }
    }

    fn measure(&mut self, bytes: u64, micros: u64, now: Instant) {
        self.samples += 1;
        if self.samples <= SETTLING_SAMPLES {
            return;
        }
        self.bytes += bytes;
        self.micros += micros;
        if self.samples == SETTLING_SAMPLES + MEASURED_SAMPLES {
            let rate = self.bytes.saturating_mul(1_000_000) / self.micros.max(1);
            self.paced = Some((rate / 100 * PACE_PERCENT, now));
        }
    }

    /// Whether congestion control has to look for the rate: it is not paced, or it fell while it
    /// was. A control that only reacts to loss would let it fall again, if the network loses
    /// packets by itself.
    pub(crate) fn probes(&self) -> bool {
        self.fell || self.pace().is_none()
    }

    /// The pacing rate in bytes per second; `None` while the rate is measured, or if it is too high
    /// for pacing.
    pub(crate) fn pace(&self) -> Option<u64> {
        self.paced.map(|(pace, _)| pace).filter(|pace| *pace <= MAX_PACED_RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(pacer: &mut Pacer, samples: u8, bytes: u64, now: Instant) {
        for _ in 0..samples {
            pacer.sample(bytes, 100_000, now);
        }
    }

    #[test]
    fn a_transport_is_paced_just_below_its_measured_rate() {
        let mut pacer = Pacer::default();
        let now = Instant::now();
        feed(&mut pacer, SETTLING_SAMPLES, 900_000, now);
        feed(&mut pacer, MEASURED_SAMPLES - 1, 100_000, now);
        assert_eq!(pacer.pace(), None);
        assert!(pacer.probes());
        feed(&mut pacer, 1, 100_000, now);
        assert_eq!(pacer.pace(), Some(970_000));
        assert!(!pacer.probes());
        feed(&mut pacer, 200, 97_000, now);
        assert_eq!(pacer.pace(), Some(970_000));
    }

    #[test]
    fn a_transport_that_became_slower_or_was_paced_for_long_is_measured_again() {
        let mut pacer = Pacer::default();
        let now = Instant::now();
        feed(&mut pacer, SETTLING_SAMPLES + MEASURED_SAMPLES, 100_000, now);
        feed(&mut pacer, SLOW_SAMPLES - 1, 80_000, now);
        feed(&mut pacer, 1, 97_000, now);
        assert!(pacer.pace().is_some());
        feed(&mut pacer, SLOW_SAMPLES, 80_000, now);
        assert_eq!(pacer.pace(), None);
        feed(&mut pacer, SETTLING_SAMPLES + MEASURED_SAMPLES, 80_000, now);
        assert_eq!(pacer.pace(), Some(776_000));
        assert!(pacer.probes());
        feed(&mut pacer, 1, 77_600, now + REMEASURE_AFTER * 2);
        assert_eq!(pacer.pace(), None);
    }
}
