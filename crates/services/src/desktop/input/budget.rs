//! How many events a client may have put in: so many a second, and a few at once.

use std::time::{Duration, Instant};

/// A bound on a rate. Whoever exceeds it waits; nothing is lost.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What one costs.
    each: Duration,
    /// How far one may be ahead of the rate.
    burst: Duration,
    /// When everything so far would have been due at the rate.
    due: Option<Instant>,
}

impl Budget {
    /// `rate` a second, `burst` at once; both at least 1.
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / rate.max(1);
        Self { each, burst: each * burst.max(1), due: None }
    }

    /// Takes `count` now: how long to wait before they may be used.
    pub(crate) fn take(&mut self, count: u32, now: Instant) -> Duration {
        let due = self.due.map_or(now, |due| due.max(now)) + self.each * count;
        self.due = Some(due);
        due.saturating_duration_since(now).saturating_sub(self.burst)
    }

    /// Takes one if there is no need to wait for it.
    pub(crate) fn take_one(&mut self, now: Instant) -> bool {
        let due = self.due.map_or(now, |due| due.max(now)) + self.each;
        if due.saturating_duration_since(now) > self.burst {
            return false;
        }
        self.due = Some(due);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rate_holds_after_it() {
        let start = Instant::now();
        let mut budget = Budget::new(100, 10);
        assert_eq!(budget.take(10, start), Duration::ZERO);
        assert_eq!(budget.take(1, start), Duration::from_millis(10));
        assert_eq!(budget.take(4, start), Duration::from_millis(50));
        let later = start + Duration::from_secs(10);
        assert_eq!(budget.take(10, later), Duration::ZERO);
        assert_eq!(budget.take(5, later), Duration::from_millis(50));
    }

    #[test]
    fn whoever_does_not_want_to_wait_gets_nothing() {
        let start = Instant::now();
        let mut budget = Budget::new(10, 2);
        let taken = (0..5).filter(|_| budget.take_one(start)).count();
        assert_eq!(taken, 2);
        assert!(budget.take_one(start + Duration::from_millis(100)));
        assert!(!budget.take_one(start + Duration::from_millis(100)));
    }
}
