//! Levada's congestion controller: CUBIC (RFC 9438) that tells random loss from congestion.
//!
//! CUBIC takes every loss as congestion. On a path that loses 1 % of packets at random it gets a
//! tenth of 100 Mbit/s at a round trip of 20 ms. This controller reacts to a loss only if
//!
//! - packets wait in a queue: the shortest round trip of the last round exceeds the shortest of the
//!   last 20 to 30 s by an eighth, and by 1 ms, or
//! - the path loses more than 3 % without a queue, as a path with a very short queue does, or marks
//!   packets (ECN).
//!
//! Where it reacts, it does as CUBIC does, so that it shares a queue with TCP. But alone in a short
//! queue it reduces its window only to what fills the path.
//! `docs/decisions/0046-quic-controller.md` has the measurements.

mod path;
#[cfg(test)]
mod tests;
mod window;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;

use window::Window;

/// What a connection and its controller tell each other.
#[derive(Debug)]
pub(super) struct Shared {
    /// The highest rate in bytes per second.
    rate: AtomicU64,
    /// The congestion window in bytes.
    window: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { rate: AtomicU64::new(u64::MAX), window: AtomicU64::new(0) }
    }
}

impl Shared {
    /// Limits the rate, in bytes per second.
    pub(super) fn limit_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The congestion window in bytes; 0 if another controller is used.
    pub(super) fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }
}

/// The controller of a path.
#[derive(Clone, Debug)]
struct TolerantCubic {
    window: Window,
    rtt: Duration,
    shared: Arc<Shared>,
}

/// Makes the controllers of a connection's paths.
#[derive(Debug)]
pub(super) struct Factory(pub(super) Arc<Shared>);

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let window = Window::new(f64::from(current_mtu));
        Box::new(TolerantCubic { window, rtt: Duration::ZERO, shared: self.0.clone() })
    }
}

impl TolerantCubic {
    fn publish(&self) {
        self.shared.window.store(self.window(), Ordering::Relaxed);
    }
}

impl Controller for TolerantCubic {
    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.rtt = rtt.get();
        self.window.on_ack(now, sent, bytes, app_limited, self.rtt);
        self.publish();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.window.on_loss(now, sent, lost_bytes, is_persistent_congestion);
        self.publish();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.window.set_mtu(f64::from(new_mtu));
    }

    fn window(&self) -> u64 {
        let window = self.window.bytes();
        let rate = self.shared.rate.load(Ordering::Relaxed);
        if rate == u64::MAX || self.rtt.is_zero() {
            return window;
        }
        // A window of one round trip is sent in one round trip.
        let paced = u128::from(rate) * self.rtt.as_micros() / 1_000_000;
        window.min(u64::try_from(paced).unwrap_or(u64::MAX).max(LEAST_PACED))
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.ssthresh = self.window.threshold();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window.bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The shortest window of a limited rate, in bytes: a few packets.
const LEAST_PACED: u64 = 4 * 1200;
