//! The two ends of a measurement: pinned threads, each with its own runtime.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use levada_harness::{EndClocks, ThreadClock, Window, pin};

use crate::testbed::Testbed;

/// The time limit for one end.
const LIMIT: Duration = Duration::from_secs(60);
/// The time limit for the setup of an end.
const SETUP: Duration = Duration::from_secs(20);

/// The state shared by both ends and the measuring thread.
pub struct Meter {
    /// Read by the sender for every message.
    stop: CacheLine<AtomicBool>,
    /// Written by the receiver for every message.
    received: CacheLine<AtomicU64>,
    started: mpsc::SyncSender<ThreadClock>,
}

/// A value with a cache line to itself, with the one next to it, which processors load along:
/// without it the line of the two counters moves between the ends with every message, which costs
/// up to an eighth of their time.
#[repr(align(128))]
struct CacheLine<T>(T);

impl Meter {
    /// Reports that the calling thread's end is ready.
    pub fn start(&self) {
        // The receiver is gone if the other end has failed.
        let _ = self.started.send(ThreadClock::current());
    }

    /// Whether the sender should end.
    pub fn stopped(&self) -> bool {
        self.stop.0.load(Ordering::Relaxed)
    }

    /// Adds received bytes of payload. Only one thread may call it.
    pub fn count(&self, bytes: usize) {
        let sum = self.received.0.load(Ordering::Relaxed) + bytes as u64;
        self.received.0.store(sum, Ordering::Relaxed);
    }
}

/// The measurement window.
#[derive(Clone, Copy)]
pub struct Timing {
    /// The time before the window.
    pub warm_up: Duration,
    /// The length of the window.
    pub length: Duration,
}

/// Runs two ends, each of which calls [`Meter::start`], until the window is over. Errors of an end
/// after it was stopped are ignored.
pub fn measure<N, F>(
    testbed: &Testbed,
    timing: Timing,
    near: impl FnOnce(&Meter) -> anyhow::Result<N> + Send,
    far: impl FnOnce(&Meter) -> anyhow::Result<F> + Send,
) -> anyhow::Result<Window> {
    let (started, clocks) = mpsc::sync_channel(2);
    let stop = CacheLine(AtomicBool::new(false));
    let received = CacheLine(AtomicU64::new(0));
    let meter = Meter { stop, received, started };
    let meter = &meter;
    thread::scope(|scope| {
        let near = scope.spawn(|| testbed.near(|| end(0, meter, near))?);
        let far = scope.spawn(|| testbed.far(|| end(1, meter, far))?);
        let window = measure_window(meter, &clocks, timing);
        meter.stop.0.store(true, Ordering::Relaxed);
        let ends = [("the near end", near.join()), ("the far end", far.join())];
        for (name, result) in ends {
            result.map_err(|_| anyhow!("{name} panicked"))?.context(name)?;
        }
        window
    })
}

/// Runs two ends, each on a pinned thread at its side of the testbed, until both have returned.
pub fn both<N: Send, F: Send>(
    testbed: &Testbed,
    near: impl FnOnce() -> anyhow::Result<N> + Send,
    far: impl FnOnce() -> anyhow::Result<F> + Send,
) -> anyhow::Result<(N, F)> {
    thread::scope(|scope| {
        let near =
            scope.spawn(|| testbed.near(|| pin(0).map_err(Into::into).and_then(|()| near()))?);
        let far =
            scope.spawn(|| testbed.far(|| pin(1).map_err(Into::into).and_then(|()| far()))?);
        let near = near.join();
        let far = far.join();
        let near = near.map_err(|_| anyhow!("the near end panicked"))?.context("the near end");
        let far = far.map_err(|_| anyhow!("the far end panicked"))?.context("the far end");
        Ok((near?, far?))
    })
}

fn measure_window(
    meter: &Meter,
    clocks: &mpsc::Receiver<ThreadClock>,
    timing: Timing,
) -> anyhow::Result<Window> {
    let next = || clocks.recv_timeout(SETUP).context("an end was not ready in time");
    let ends = EndClocks { near: next()?, far: next()? };
    let count = || meter.received.0.load(Ordering::Relaxed);
    Ok(ends.measure(timing.warm_up, timing.length, count)?)
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

/// Runs an end as a task of a new single-threaded runtime, as servers run their connections. When
/// another task wakes the future of [`block_on`], the runtime asks the kernel for events first,
/// which is a system call more.
pub fn run_task<T: Send + 'static>(
    end: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    block_on(async { tokio::spawn(end).await.context("an end's task failed")? })
}

/// Runs an end on a new single-threaded runtime.
pub fn block_on<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let limited = async { tokio::time::timeout(LIMIT, task).await };
    let done = runtime.block_on(limited).context("an end took too long")?;
    runtime.shutdown_background();
    done
}
