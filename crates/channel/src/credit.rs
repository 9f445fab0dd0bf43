//! Credit: how much a sender may send, and how much a receiver has granted, of a stream or of the
//! connection. Limits are totals since the start, so that repeating one is harmless.

use std::time::{Duration, Instant};

use crate::{Error, varint};

/// What every DATA frame costs beside its bytes, so that even empty messages pay for their memory.
pub(crate) const FRAME_COST: u64 = 8;
/// The credit of every stream until its receiver grants more.
pub(crate) const INITIAL_STREAM: u64 = 256 << 10;
/// The credit of the connection until its receiver grants more.
pub(crate) const INITIAL_CONNECTION: u64 = 1 << 20;

/// The sender's side.
pub(crate) struct Credit {
    limit: u64,
    used: u64,
}

impl Credit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    /// What may still be sent.
    pub(crate) fn left(&self) -> u64 {
        self.limit - self.used
    }

    /// Uses up `cost`, which is at most [`Self::left`].
    pub(crate) fn spend(&mut self, cost: u64) {
        debug_assert!(cost <= self.left());
        self.used += cost;
    }

    /// The receiver grants `limit` in all; less than before changes nothing.
    pub(crate) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// What a window needs to know about the connection to find its size.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// The time of the last event from outside.
    pub(crate) now: Instant,
    /// The smoothed round-trip time; None before the first measurement.
    pub(crate) rtt: Option<Duration>,
}

/// The receiver's side: grants what it is ready to hold, and more when the reader is fast.
pub(crate) struct Window {
    size: u64,
    max: u64,
    /// The total granted.
    limit: u64,
    received: u64,
    consumed: u64,
    /// When the limit was last moved, and how much had been consumed then.
    moved: (Instant, u64),
}

impl Window {
    /// A window that starts with `size` and grows up to `max` bytes.
    pub(crate) fn new(size: u64, max: u64, now: Instant) -> Self {
        let max = max.max(size);
        Self { size, max, limit: size, received: 0, consumed: 0, moved: (now, 0) }
    }

    /// Starts with `size` instead.
    pub(crate) fn widen(&mut self, size: u64) {
        self.size = size.min(self.max);
        self.limit = self.consumed + self.size;
    }

    /// The total granted so far.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The peer has used `cost` of its credit.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.received = self.received.saturating_add(cost);
        if self.received > self.limit {
            Err(Error::Protocol("more than its credit"))
        } else {
            Ok(())
        }
    }

    /// `cost` is free again. The limit moves when half a window has been consumed; if that took less
    /// than two round trips, the window and not the reader was the brake, and it doubles. True if
    /// there is a new limit to tell the sender.
    pub(crate) fn release(&mut self, cost: u64, pace: Pace) -> bool {
        self.consumed += cost;
        let (at, mark) = self.moved;
        if self.consumed - mark < self.size / 2 {
            return false;
        }
        let fast = pace.rtt.is_some_and(|rtt| pace.now.saturating_duration_since(at) < 2 * rtt);
        if fast {
            self.size = (2 * self.size).min(self.max);
        }
        self.moved = (pace.now, self.consumed);
        self.limit = (self.consumed + self.size).min(varint::MAX);
        true
    }

    /// What was received and not yet consumed.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_moves_at_half_and_grows_for_a_fast_reader_only() {
        let start = Instant::now();
        let pace = |ms| Pace {
            now: start + Duration::from_millis(ms),
            rtt: Some(Duration::from_millis(10)),
        };
        let mut window = Window::new(1000, 3000, start);
        window.charge(1000).unwrap();
        assert_eq!(window.held(), 1000);
        assert!(!window.release(499, pace(1)));
        assert!(window.release(1, pace(5)));
        assert_eq!(window.limit(), 2500);
        assert!(!window.release(500, pace(6)));
        window.charge(1500).unwrap();
        assert!(window.release(500, pace(26)));
        assert_eq!(window.limit(), 3500);
        assert!(window.release(1000, pace(27)));
        assert_eq!(window.limit(), 5500);
        window.charge(3000).unwrap();
        assert!(window.charge(1).is_err());
    }

    #[test]
    fn limits_never_go_back() {
        let mut credit = Credit::new(10);
        credit.spend(10);
        credit.raise(5);
        assert_eq!(credit.left(), 0);
        credit.raise(12);
        assert_eq!(credit.left(), 2);
    }
}
