//! How fast the transport may send beside something urgent.
//!
//! Left alone, congestion control asks more of the network than it carries, to learn whether it carries more:
//! bbr a quarter more in one of eight round trips, and what is too much waits in a queue in front of what is
//! urgent, for 10 ms at a round trip of 40 ms. Just below the transport's rate there is no queue.

use std::time::{Duration, Instant};

/// The transport is paced at this many percent of the rate that was measured: more than the error of measuring, which
/// bytes that came to lie in buffers cause.
const PERCENT: u64 = 97;
/// Samples of a full transport that a rate is measured over…
const MEASURED: u8 = 10;
/// …after those in which buffers still shrink or grow.
const SETTLING: u8 = 3;
/// After so long the transport may show once more what it carries. It has become faster or slower meanwhile: a faster
/// one is used in full only then.
const AGAIN: Duration = Duration::from_secs(60);
/// A transport that is faster than this, in bytes a second, empties its queues soon enough; and timers that pace
/// it would cost more than they give. A gigabit a second is below.
const FASTEST: u64 = 150_000_000;
/// So many samples in a row below nine tenths of the pace say that the transport has become slower.
const SLOWER: u8 = 3;

/// Measures the transport's rate at times, and between them says how fast it may send.
#[derive(Default)]
pub(crate) struct Pacer {
    samples: u8,
    bytes: u64,
    micros: u64,
    /// Bytes a second, and since when.
    paced: Option<(u64, Instant)>,
    slow: u8,
}

impl Pacer {
    /// The transport was full and took so many bytes in so many microseconds.
    pub(crate) fn sample(&mut self, bytes: u64, micros: u64, now: Instant) {
        match self.paced {
            None => self.measure(bytes, micros, now),
            Some((pace, since)) => {
                let slow = bytes.saturating_mul(10_000_000) < pace.saturating_mul(9 * micros);
                self.slow = if slow { self.slow + 1 } else { 0 };
                if self.slow == SLOWER || now.duration_since(since) > AGAIN {
                    *self = Self::default();
                }
            }
        }
    }

    fn measure(&mut self, bytes: u64, micros: u64, now: Instant) {
        self.samples += 1;
        if self.samples <= SETTLING {
            return;
        }
        self.bytes += bytes;
        self.micros += micros;
        if self.samples == SETTLING + MEASURED {
            let rate = self.bytes.saturating_mul(1_000_000) / self.micros.max(1);
            self.paced = Some((rate / 100 * PERCENT, now));
        }
    }

    /// Bytes a second; `None` if the transport's own rate is to be seen.
    pub(crate) fn pace(&self) -> Option<u64> {
        self.paced.map(|(pace, _)| pace).filter(|pace| *pace <= FASTEST)
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
    fn a_link_is_paced_just_below_the_rate_that_was_measured() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        feed(&mut pacer, SETTLING, 900_000, now);
        feed(&mut pacer, MEASURED - 1, 100_000, now);
        assert_eq!(pacer.pace(), None);
        feed(&mut pacer, 1, 100_000, now);
        assert_eq!(pacer.pace(), Some(970_000));
        feed(&mut pacer, 200, 97_000, now);
        assert_eq!(pacer.pace(), Some(970_000));
    }

    #[test]
    fn a_link_that_became_slower_or_was_paced_for_long_is_measured_again() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        feed(&mut pacer, SETTLING + MEASURED, 100_000, now);
        feed(&mut pacer, SLOWER - 1, 80_000, now);
        feed(&mut pacer, 1, 97_000, now);
        assert!(pacer.pace().is_some());
        feed(&mut pacer, SLOWER, 80_000, now);
        assert_eq!(pacer.pace(), None);
        feed(&mut pacer, SETTLING + MEASURED, 80_000, now);
        assert_eq!(pacer.pace(), Some(776_000));
        feed(&mut pacer, 1, 77_600, now + AGAIN * 2);
        assert_eq!(pacer.pace(), None);
    }
}
