//! How many bytes pass in a second.

use std::collections::VecDeque;
use std::time::Duration;

/// The time over which bytes are counted.
const WINDOW: Duration = Duration::from_secs(5);
/// Bytes within so short a time are counted together.
const STEP: Duration = Duration::from_millis(100);

/// The rate of the last five seconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When bytes have passed, and how many; at most one entry for each [`STEP`].
    counts: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// So many bytes have passed. Time is the duration since any fixed moment, which does not go
    /// back.
    pub(super) fn add(&mut self, now: Duration, bytes: u64) {
        self.forget(now);
        match self.counts.back_mut() {
            Some((since, count)) if now < *since + STEP => *count += bytes,
            _ => self.counts.push_back((now, bytes)),
        }
    }

    /// Bytes per second; since the beginning, if that is less than five seconds ago.
    pub(super) fn per_second(&mut self, now: Duration) -> u64 {
        self.forget(now);
        let bytes: u64 = self.counts.iter().map(|(_, count)| count).sum();
        (bytes as f64 / now.clamp(STEP, WINDOW).as_secs_f64()) as u64
    }

    fn forget(&mut self, now: Duration) {
        while self.counts.front().is_some_and(|(since, _)| *since + WINDOW <= now) {
            self.counts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_last_five_seconds() {
        let millis = Duration::from_millis;
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(Duration::ZERO), 0);
        for step in 0..200 {
            rate.add(millis(step * 50), 100);
        }
        assert!(rate.counts.len() <= 51, "{rate:?}");
        assert_eq!(rate.per_second(millis(10_000)), 1_960);
        assert_eq!(rate.per_second(millis(12_500)), 960);
        assert_eq!(rate.per_second(millis(20_000)), 0);
    }
}
