//! Flow control of a stream or of the connection: the sender's credit and the receiver's window.
//! Limits are totals since the start, so that repeating one has no effect.

use std::time::{Duration, Instant};

use crate::{Error, varint};

/// The credit that every DATA frame costs in addition to its bytes, so that empty messages pay for
/// their memory too.
pub(crate) const FRAME_COST: u64 = 8;
/// The credit of every stream until its receiver grants more.
pub(crate) const INITIAL_STREAM: u64 = 256 << 10;
/// The credit of the connection until its receiver grants more.
pub(crate) const INITIAL_CONNECTION: u64 = 1 << 20;

/// The sender's side: what it may still send.
pub(crate) struct Credit {
    limit: u64,
    used: u64,
}

impl Credit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    /// The unused credit.
    pub(crate) fn left(&self) -> u64 {
        self.limit - self.used
    }

    /// Uses up `cost`, which is at most [`Self::left`].
    pub(crate) fn spend(&mut self, cost: u64) {
        debug_assert!(cost <= self.left());
        self.used += cost;
    }

    /// The receiver grants `limit` in total; less than before changes nothing.
    pub(crate) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// The state of the network path that decides whether a window grows.
#[derive(Clone, Copy)]
pub(crate) struct PathState {
    /// The time of the last call into the connection.
    pub(crate) now: Instant,
    /// The smoothed round-trip time; None before the first measurement.
    pub(crate) rtt: Option<Duration>,
}

/// The receiver's side: how much it is ready to hold, and how much of that was granted.
pub(crate) struct Window {
    size: u64,
    /// The total granted.
    limit: u64,
    received: u64,
    consumed: u64,
    /// The value of `consumed` at the last measurement, and its time.
    measured: (u64, Instant),
}

impl Window {
    /// A window of `size` bytes, already granted to the sender.
    pub(crate) fn new(size: u64, now: Instant) -> Self {
        Self { size, limit: size, received: 0, consumed: 0, measured: (0, now) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The total granted so far.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The amount received and not yet consumed.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// The peer has used `cost` of its credit.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.received = self.received.saturating_add(cost);
        if self.received > self.limit {
            Err(Error::Protocol("more data than its credit allows"))
        } else {
            Ok(())
        }
    }

    /// `cost` was consumed; returns by how much the limit could move now.
    pub(crate) fn release(&mut self, cost: u64) -> u64 {
        self.consumed += cost;
        (self.consumed + self.size).saturating_sub(self.limit)
    }

    /// Moves the limit, which never decreases, as far as possible.
    pub(crate) fn advance(&mut self) {
        self.limit = self.limit.max((self.consumed + self.size).min(varint::MAX));
    }

    /// Whether the window should grow: true if the reader consumed at least a quarter of it per
    /// round trip since the last measurement, because then the window and not the reader limits the
    /// rate. None within one round trip of that, or without a round-trip time.
    pub(crate) fn should_grow(&mut self, path: PathState) -> Option<bool> {
        let rtt = path.rtt?;
        let (before, then) = self.measured;
        let since = path.now.saturating_duration_since(then);
        if since < rtt {
            return None;
        }
        self.measured = (self.consumed, path.now);
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
    fn the_limit_moves_with_consumption() {
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
    fn a_window_should_grow_if_a_quarter_is_consumed_per_round_trip() {
        let start = Instant::now();
        let path = |ms| PathState {
            now: start + Duration::from_millis(ms),
            rtt: Some(Duration::from_millis(10)),
        };
        let mut window = Window::new(1000, start);
        window.charge(1000).unwrap();
        window.release(249);
        assert_eq!(window.should_grow(PathState { rtt: None, ..path(10) }), None);
        assert_eq!(window.should_grow(path(9)), None);
        assert_eq!(window.should_grow(path(10)), Some(false));
        window.release(500);
        assert_eq!(window.should_grow(path(19)), None);
        assert_eq!(window.should_grow(path(30)), Some(true));
        // What is consumed at once counts for the time since the last measurement, and only once.
        window.release(251);
        assert_eq!(window.should_grow(path(60)), Some(false));
        assert_eq!(window.should_grow(path(61)), None);
    }

    #[test]
    fn limits_never_decrease() {
        let mut credit = Credit::new(10);
        credit.spend(10);
        credit.raise(5);
        assert_eq!(credit.left(), 0);
        credit.raise(12);
        assert_eq!(credit.left(), 2);
    }
}
