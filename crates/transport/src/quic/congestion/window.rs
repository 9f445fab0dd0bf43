//! The congestion window.

use std::time::{Duration, Instant};

use super::path::{Congestion, Path};

/// The window after congestion, as a share of the window before (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// The constant of the cubic function, in packets per second³ (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// The packets that a window grows by in a round trip while it follows Reno (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The initial window in packets (RFC 9002 section 7.2).
const INITIAL: f64 = 10.0;
/// The shortest window in packets (RFC 9002 section 7.2).
const LEAST: f64 = 2.0;
/// After congestion with a queue, the window is at least this share of what fills the path: less
/// than all of it, so that the queue becomes empty and the round trip without queues is seen.
const REFILL: f64 = 0.95;
/// …and at most this share of the window before.
const YIELD: f64 = 0.9;

/// The window of CUBIC (RFC 9438), which ignores losses without congestion.
#[derive(Clone, Debug)]
pub(super) struct Window {
    path: Path,
    /// In bytes, as all lengths.
    mtu: f64,
    window: f64,
    threshold: f64,
    epoch: Option<Epoch>,
    /// Losses of packets sent until then belong to congestion that was reacted to.
    reacted: Option<Instant>,
    last_ack: Option<Instant>,
}

/// The growth since congestion.
#[derive(Clone, Debug)]
struct Epoch {
    since: Instant,
    /// The window before.
    highest: f64,
    /// Seconds until the window is as long again.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
}

impl Window {
    /// The window of a new connection with packets of `mtu` bytes.
    pub(super) fn new(mtu: f64) -> Self {
        Self {
            path: Path::new(),
            mtu,
            window: INITIAL * mtu,
            threshold: f64::INFINITY,
            epoch: None,
            reacted: None,
            last_ack: None,
        }
    }

    /// The bytes that may be in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.window as u64
    }

    /// The window from which on its growth is slow.
    pub(super) fn threshold(&self) -> Option<u64> {
        self.threshold.is_finite().then_some(self.threshold as u64)
    }

    /// Packets have another length now.
    pub(super) fn set_mtu(&mut self, mtu: f64) {
        self.mtu = mtu;
        self.window = self.window.max(LEAST * mtu);
    }

    /// A packet of `bytes` bytes that was sent at `sent` is acknowledged. `app_limited`: the sender
    /// had no more data.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: Duration,
    ) {
        let bytes = bytes as f64;
        let round_ended = self.path.on_ack(now, sent, bytes, app_limited);
        let since_last =
            self.last_ack.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.last_ack = Some(now);
        if app_limited {
            // A window that is not used does not grow, now or later for the time in between (RFC
            // 9438 section 5.8).
            if let Some(epoch) = &mut self.epoch {
                epoch.since += since_last;
            }
            return;
        }
        if self.reacted.is_some_and(|reacted| sent <= reacted) {
            return;
        }
        if self.window >= self.threshold {
            self.grow(now, bytes, rtt.as_secs_f64());
        } else {
            self.window = (self.window + bytes).min(self.threshold);
            if round_ended && self.path.has_queue() && self.path.is_full() {
                let window = self.after_congestion(Congestion::Queue);
                self.begin_epoch(now, window);
            }
        }
    }

    /// Packets of `bytes` bytes, the last of which was sent at `sent`, are lost; 0 bytes stand for
    /// marks of ECN.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, bytes: u64, persistent: bool) {
        self.path.on_loss(bytes as f64);
        if self.reacted.is_some_and(|reacted| sent <= reacted) {
            return;
        }
        let congestion = match self.path.congestion(self.mtu) {
            None if persistent || bytes == 0 => Some(Congestion::Loss),
            found => found,
        };
        let Some(congestion) = congestion else { return };
        self.reacted = Some(now);
        let window = self.after_congestion(congestion);
        self.begin_epoch(now, window);
        if persistent {
            // All was lost for a time: as at the start, up to half (RFC 9002 section 7.6).
            self.window = LEAST * self.mtu;
            self.epoch = None;
            self.reacted = None;
        }
    }

    /// The window after congestion.
    fn after_congestion(&self, congestion: Congestion) -> f64 {
        let least = BETA * self.window;
        let window = match congestion {
            // Alone on a path with a short queue, less would leave the path idle.
            Congestion::Queue => (REFILL * self.path.capacity()).clamp(least, YIELD * self.window),
            Congestion::Loss => least,
        };
        window.max(LEAST * self.mtu)
    }

    fn begin_epoch(&mut self, now: Instant, window: f64) {
        let earlier = self.epoch.as_ref().map_or(0.0, |epoch| epoch.highest);
        // A window shorter than before the last congestion leaves room to other flows (RFC 9438
        // section 4.7).
        let highest =
            if self.window < earlier { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        let k = ((highest - window).max(0.0) / self.mtu / C).cbrt();
        self.epoch = Some(Epoch { since: now, highest, k, reno: window });
        self.window = window;
        self.threshold = window;
    }

    /// Congestion avoidance (RFC 9438 sections 4.2 to 4.5).
    fn grow(&mut self, now: Instant, bytes: f64, rtt: f64) {
        let mtu = self.mtu;
        let window = self.window;
        let epoch =
            self.epoch.get_or_insert(Epoch { since: now, highest: window, k: 0.0, reno: window });
        let elapsed = now.saturating_duration_since(epoch.since).as_secs_f64();
        let cubic = |time: f64| epoch.highest + C * (time - epoch.k).powi(3) * mtu;
        let target = cubic(elapsed + rtt).clamp(window, 1.5 * window);
        let now_cubic = cubic(elapsed);
        let alpha = if epoch.reno < epoch.highest { ALPHA } else { 1.0 };
        epoch.reno += alpha * mtu * bytes / window;
        self.window = if now_cubic < epoch.reno {
            window.max(epoch.reno)
        } else {
            window + (target - window) * bytes / window
        };
    }
}
