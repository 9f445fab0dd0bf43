//! The two ends of a measurement: threads of their own, pinned, each with a runtime of its own.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use levada_harness::{Clock, Ends, Window, pin};

use crate::place::Place;

/// An end that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(60);
/// How long setting up may take.
const SETUP: Duration = Duration::from_secs(20);

/// What both ends and the one who measures share.
pub struct Meter {
    stop: AtomicBool,
    received: AtomicU64,
    started: mpsc::SyncSender<Clock>,
}

impl Meter {
    /// The calling thread's end is ready: what follows is to be measured.
    pub fn start(&self) {
        // Nobody listens any more if the other end has failed.
        let _ = self.started.send(Clock::of_this_thread());
    }

    /// Whether the sender should end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// So many bytes of payload have arrived. Only one thread may call it.
    pub fn count(&self, bytes: usize) {
        let sum = self.received.load(Ordering::Relaxed) + bytes as u64;
        self.received.store(sum, Ordering::Relaxed);
    }
}

/// When to look.
#[derive(Clone, Copy)]
pub struct Timing {
    /// Until then nothing counts.
    pub warm_up: Duration,
    /// Then so long everything does.
    pub length: Duration,
}

/// Runs two ends, each of which calls [`Meter::start`], until the window is over. An end that fails after it was told
/// to stop has not failed.
pub fn measure<N, F>(
    place: &Place,
    timing: Timing,
    near: impl FnOnce(&Meter) -> anyhow::Result<N> + Send,
    far: impl FnOnce(&Meter) -> anyhow::Result<F> + Send,
) -> anyhow::Result<Window> {
    let (started, clocks) = mpsc::sync_channel(2);
    let meter = Meter { stop: AtomicBool::new(false), received: AtomicU64::new(0), started };
    let meter = &meter;
    thread::scope(|scope| {
        let near = scope.spawn(|| place.near(|| end(0, meter, near))?);
        let far = scope.spawn(|| place.far(|| end(1, meter, far))?);
        let window = watch(meter, &clocks, timing);
        meter.stop.store(true, Ordering::Relaxed);
        let ends = [("the near end", near.join()), ("the far end", far.join())];
        for (name, result) in ends {
            result.map_err(|_| anyhow!("{name} panicked"))?.context(name)?;
        }
        window
    })
}

/// Runs two ends, each on a pinned thread at its place, until both have ended by themselves.
pub fn both<N: Send, F: Send>(
    place: &Place,
    near: impl FnOnce() -> anyhow::Result<N> + Send,
    far: impl FnOnce() -> anyhow::Result<F> + Send,
) -> anyhow::Result<(N, F)> {
    thread::scope(|scope| {
        let near =
            scope.spawn(|| place.near(|| pin(0).map_err(Into::into).and_then(|()| near()))?);
        let far = scope.spawn(|| place.far(|| pin(1).map_err(Into::into).and_then(|()| far()))?);
        let (near, far) = (near.join(), far.join());
        let near = near.map_err(|_| anyhow!("the near end panicked"))?.context("the near end");
        let far = far.map_err(|_| anyhow!("the far end panicked"))?.context("the far end");
        Ok((near?, far?))
    })
}

fn watch(meter: &Meter, clocks: &mpsc::Receiver<Clock>, timing: Timing) -> anyhow::Result<Window> {
    let next = || clocks.recv_timeout(SETUP).context("an end was not ready in time");
    let ends = Ends { near: next()?, far: next()? };
    let count = || meter.received.load(Ordering::Relaxed);
    Ok(ends.watch(timing.warm_up, timing.length, count)?)
}

fn end<T>(
    core: usize,
    meter: &Meter,
    work: impl FnOnce(&Meter) -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    pin(core)?;
    match work(meter) {
        Err(error) if !meter.stopped() => Err(error),
        _ => Ok(()),
    }
}

/// Runs an end's task on a runtime of its own.
pub fn block_on<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let limited = async { tokio::time::timeout(LIMIT, task).await };
    let done = runtime.block_on(limited).context("an end took too long")?;
    runtime.shutdown_background();
    done
}
