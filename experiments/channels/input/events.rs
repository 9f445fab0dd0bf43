//! Input events: when they are sent, and how late they arrive.
//!
//! Latency counts from just before the event is handed over for sending, by one clock for both ends: what lies
//! between the tick and that moment is the measuring thread's wake-up, which is no property of a channel. It is
//! kept as "sender lateness", so that a subject that keeps its own thread busy does not gain by it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use levada_harness::Measured;
use tokio::sync::mpsc;

use crate::channels::ends::{Meter, Timing};

/// Bytes of an event: one of a pointer or a keyboard, with room.
pub const LENGTH: usize = 32;

/// How events are sent.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Events per second.
    pub rate_hz: u32,
    /// Events before those that count.
    pub before: u32,
    /// Events that count.
    pub count: u32,
}

impl Plan {
    /// The same as times.
    pub fn timing(self) -> Timing {
        let time = |events: u32| Duration::from_secs(1) * events / self.rate_hz;
        Timing { warm_up: time(self.before), length: time(self.count) }
    }
}

/// What both ends know of the events.
pub struct Events {
    plan: Plan,
    epoch: Instant,
    seen: Mutex<Seen>,
}

/// In nanoseconds.
struct Seen {
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Events {
    /// None yet.
    pub fn new(plan: Plan) -> anyhow::Result<Self> {
        let seen = Seen { latency: Histogram::new(3)?, lateness: Histogram::new(3)? };
        Ok(Self { plan, epoch: Instant::now(), seen: Mutex::new(seen) })
    }

    /// Hands every event to `send` when it is due, until all have been sent and the meter has stopped.
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

    /// The event of this number, stamped now.
    fn event(&self, number: u32, due: Instant) -> anyhow::Result<[u8; LENGTH]> {
        let mut event = [0; LENGTH];
        let now = Instant::now();
        if (1..=self.plan.count).contains(&number.saturating_sub(self.plan.before)) {
            let late = now.saturating_duration_since(due);
            self.seen().lateness.record(u64::try_from(late.as_nanos())?)?;
            event[8] = 1;
        }
        let stamp = u64::try_from((now - self.epoch).as_nanos())?;
        event[..8].copy_from_slice(&stamp.to_be_bytes());
        Ok(event)
    }

    /// This event has reached the application.
    pub fn arrived(&self, event: &[u8]) -> anyhow::Result<()> {
        let now = u64::try_from(self.epoch.elapsed().as_nanos())?;
        let Some((stamp, &[counts, ..])) = event.split_first_chunk() else { return Ok(()) };
        if counts == 1 {
            self.seen().latency.record(now.saturating_sub(u64::from_be_bytes(*stamp)))?;
        }
        Ok(())
    }

    /// What was measured, if all events that count have arrived.
    pub fn measured(&self) -> anyhow::Result<Vec<Measured>> {
        let seen = self.seen();
        let (latency, lateness) = (seen.latency.clone(), seen.lateness.clone());
        let (arrived, count) = (latency.len(), self.plan.count);
        ensure!(arrived == u64::from(count), "{arrived} of {count} events arrived");
        let high = |q| latency.value_at_quantile(q) as f64 * 1e-6;
        let (p99, p999) = (high(0.99), high(0.999));
        Ok(vec![
            Measured::milliseconds("latency", latency),
            Measured::new("latency p99", "ms", p99),
            Measured::new("latency p99.9", "ms", p999),
            Measured::milliseconds("sender lateness", lateness),
        ])
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Even points of time, each told when it has come, by a thread that does nothing but sleep until then: a runtime's
/// own timers are good to a millisecond only. It ends when nobody listens.
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
