//! Input events: their schedule and their latency.
//!
//! Latency is measured from just before the event is passed to `send`, by one clock for both ends.
//! The time between the tick and that moment is the wake-up of the measuring thread, not of the
//! channel. It is recorded as "sender lateness", so that a subject that keeps its thread busy has
//! no advantage.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::Measured;
use tokio::sync::mpsc;

use crate::channels::ends::{Meter, Timing};

/// The length of an event in bytes, enough for one of a pointer or a keyboard.
pub const LENGTH: usize = 32;

/// The rate and number of events.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Events per second.
    pub rate_hz: u32,
    /// Events in the warm-up.
    pub before: u32,
    /// Counted events.
    pub count: u32,
}

impl Plan {
    /// The plan as durations.
    pub fn timing(self) -> Timing {
        let time = |events: u32| Duration::from_secs(1) * events / self.rate_hz;
        Timing { warm_up: time(self.before), length: time(self.count) }
    }
}

/// The events of one run, shared by both ends.
pub struct Events {
    plan: Plan,
    epoch: Instant,
    recorded: Mutex<Recorded>,
}

/// Histograms in nanoseconds.
struct Recorded {
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Events {
    /// A run without events yet.
    pub fn new(plan: Plan) -> anyhow::Result<Self> {
        let recorded = Recorded { latency: Histogram::new(3)?, lateness: Histogram::new(3)? };
        Ok(Self { plan, epoch: Instant::now(), recorded: Mutex::new(recorded) })
    }

    /// Calls `send` with each event when it is due, until all have been sent and the meter has
    /// stopped.
    pub async fn send_all(
        &self,
        meter: &Meter,
        mut send: impl AsyncFnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut ticks = ticks(Duration::from_secs(1) / self.plan.rate_hz)?;
        let mut number = 0;
        while number < self.plan.before + self.plan.count || !meter.stopped() {
            let due = ticks.recv().await.context("no more ticks")?;
            number += 1;
            send(&self.event(number, due)?).await?;
        }
        Ok(())
    }

    /// The event with this number and the current time stamp.
    fn event(&self, number: u32, due: Instant) -> anyhow::Result<[u8; LENGTH]> {
        let mut event = [0; LENGTH];
        let now = Instant::now();
        if (1..=self.plan.count).contains(&number.saturating_sub(self.plan.before)) {
            let late = now.saturating_duration_since(due);
            self.recorded().lateness.record(u64::try_from(late.as_nanos())?)?;
            event[8] = 1;
        }
        let stamp = u64::try_from((now - self.epoch).as_nanos())?;
        event[..8].copy_from_slice(&stamp.to_be_bytes());
        Ok(event)
    }

    /// Records the arrival of an event at the application.
    pub fn arrived(&self, event: &[u8]) -> anyhow::Result<()> {
        let now = u64::try_from(self.epoch.elapsed().as_nanos())?;
        let Some((stamp, &[counts, ..])) = event.split_first_chunk() else { return Ok(()) };
        if counts == 1 {
            self.recorded().latency.record(now.saturating_sub(u64::from_be_bytes(*stamp)))?;
        }
        Ok(())
    }

    /// The measurements, if all counted events have arrived.
    pub fn measured(&self) -> anyhow::Result<Vec<Measured>> {
        let recorded = self.recorded();
        let latency = recorded.latency.clone();
        let lateness = recorded.lateness.clone();
        let arrived = latency.len();
        let count = self.plan.count;
        ensure!(arrived == u64::from(count), "{arrived} of {count} events arrived");
        let high = |q| latency.value_at_quantile(q) as f64 * 1e-6;
        let p99 = high(0.99);
        let p999 = high(0.999);
        Ok(vec![
            Measured::milliseconds("latency", latency),
            Measured::new("latency p99", "ms", p99),
            Measured::new("latency p99.9", "ms", p999),
            Measured::milliseconds("sender lateness", lateness),
        ])
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ticks at even intervals, from a thread that only sleeps: tokio's timers have a resolution of one
/// millisecond. The thread ends when the receiver is dropped.
fn ticks(interval: Duration) -> anyhow::Result<mpsc::UnboundedReceiver<Instant>> {
    let (tick, ticks) = mpsc::unbounded_channel();
    let run = move || {
        let mut due = Instant::now() + interval;
        loop {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if tick.send(due).is_err() {
                return;
            }
            due += interval;
        }
    };
    thread::Builder::new().name("ticks".into()).spawn(run).context("start a thread")?;
    Ok(ticks)
}
