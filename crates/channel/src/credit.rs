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

/// The receiver's side: how much it is ready to hold, and what of that the sender was told.
pub(crate) struct Window {
    size: u64,
    /// The total granted.
    limit: u64,
    received: u64,
    consumed: u64,
    /// What was consumed when the reader was last judged, and when that was.
    judged: (u64, Instant),
}

impl Window {
    /// A window of `size` bytes, which the sender knows of.
    pub(crate) fn new(size: u64, now: Instant) -> Self {
        Self { size, limit: size, received: 0, consumed: 0, judged: (0, now) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The total granted so far.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// What was received and not yet consumed.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
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

    /// `cost` is free again; by how much the limit could move now.
    pub(crate) fn release(&mut self, cost: u64) -> u64 {
        self.consumed += cost;
        (self.consumed + self.size).saturating_sub(self.limit)
    }

    /// Moves the limit, which never goes back, as far as it can.
    pub(crate) fn advance(&mut self) {
        self.limit = self.limit.max((self.consumed + self.size).min(varint::MAX));
    }

    /// Once a round trip or more has passed since the last time: true if a quarter of the window was
    /// consumed in each. Then the window and not the reader is the brake.
    pub(crate) fn judge(&mut self, pace: Pace) -> Option<bool> {
        let rtt = pace.rtt?;
        let (before, then) = self.judged;
        let since = pace.now.saturating_duration_since(then);
        if since < rtt {
            return None;
        }
        self.judged = (self.consumed, pace.now);
        let consumed = u128::from(self.consumed - before);
        Some(4 * consumed * rtt.as_nanos() >= u128::from(self.size) * since.as_nanos())
    }

    /// Makes the window, and so the limit, larger.
    pub(crate) fn grow(&mut self, by: u64) {
        self.size += by;
        self.limit = (self.limit + by).min(varint::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_moves_with_what_was_consumed() {
        let mut window = Window::new(1000, Instant::now());
        window.charge(1000).unwrap();
        assert_eq!((window.held(), window.limit()), (1000, 1000));
        assert_eq!(window.release(400), 400);
        assert_eq!(window.release(100), 500);
        window.advance();
        assert_eq!((window.held(), window.limit()), (500, 1500));
        window.grow(1000);
        assert_eq!((window.size(), window.limit()), (2000, 2500));
        window.charge(1500).unwrap();
        assert!(window.charge(1).is_err());
    }

    #[test]
    fn a_reader_is_judged_by_what_it_consumes_in_a_round_trip() {
        let start = Instant::now();
        let pace = |ms| Pace {
            now: start + Duration::from_millis(ms),
            rtt: Some(Duration::from_millis(10)),
        };
        let mut window = Window::new(1000, start);
        window.charge(1000).unwrap();
        window.release(249);
        assert_eq!(window.judge(Pace { rtt: None, ..pace(10) }), None);
        assert_eq!(window.judge(pace(9)), None);
        assert_eq!(window.judge(pace(10)), Some(false));
        window.release(500);
        assert_eq!(window.judge(pace(19)), None);
        assert_eq!(window.judge(pace(30)), Some(true));
        // All at once counts for the time before it, and once.
        window.release(251);
        assert_eq!(window.judge(pace(60)), Some(false));
        assert_eq!(window.judge(pace(61)), None);
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
