//! A rate limiter for events, with a sustained rate and a burst (the generic cell rate algorithm,
//! ITU-T I.371).

use std::time::{Duration, Instant};

/// Limits a rate. It computes delays, and the caller waits.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// The time between two events at the rate.
    interval: Duration,
    /// How far events may be ahead of the rate.
    burst: Duration,
    /// When all events so far would be complete at the rate.
    due: Option<Instant>,
}

impl RateLimiter {
    /// Allows `rate` events a second, and `burst` at once; both are at least 1.
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / rate.max(1);
        Self { interval, burst: interval * burst.max(1), due: None }
    }

    /// Counts `count` events, and returns how long the caller must wait before using them.
    pub(crate) fn take(&mut self, count: u32, now: Instant) -> Duration {
        let due = self.due.map_or(now, |due| due.max(now)) + self.interval * count;
        self.due = Some(due);
        due.saturating_duration_since(now).saturating_sub(self.burst)
    }

    /// Counts one event if it needs no wait; otherwise returns false.
    pub(crate) fn take_one(&mut self, now: Instant) -> bool {
        let due = self.due.map_or(now, |due| due.max(now)) + self.interval;
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
    fn a_burst_needs_no_wait_and_the_rate_applies_after_it() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(100, 10);
        assert_eq!(limiter.take(10, start), Duration::ZERO);
        assert_eq!(limiter.take(1, start), Duration::from_millis(10));
        assert_eq!(limiter.take(4, start), Duration::from_millis(50));
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.take(10, later), Duration::ZERO);
        assert_eq!(limiter.take(5, later), Duration::from_millis(50));
    }

    #[test]
    fn take_one_refuses_events_that_need_a_wait() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(10, 2);
        let taken = (0..5).filter(|_| limiter.take_one(start)).count();
        assert_eq!(taken, 2);
        assert!(limiter.take_one(start + Duration::from_millis(100)));
        assert!(!limiter.take_one(start + Duration::from_millis(100)));
    }
}
