//! Flows from one end of a testbed to the other, each with a thread at either end, and what they
//! transfer in a window.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use levada_harness::ThreadClock;

use crate::testbed::Testbed;

/// The time limit for an end.
const LIMIT: Duration = Duration::from_secs(120);
/// The time limit for the setup of an end.
const SETUP: Duration = Duration::from_secs(20);

/// Between two looks whether the flow is stopped.
const STEP: Duration = Duration::from_millis(50);

/// One end of a flow.
pub type End<'a> = Box<dyn FnOnce(&Meter) -> anyhow::Result<()> + Send + 'a>;

/// A sender and a receiver, each of which calls [`Meter::start`].
pub struct Flow<'a> {
    /// The sender, at the near end of the testbed.
    pub near: End<'a>,
    /// The receiver, at the far end.
    pub far: End<'a>,
    /// How long the sender waits before it starts.
    pub delay: Duration,
}

/// What both ends of a flow and the measuring thread share.
pub struct Meter {
    stop: AtomicBool,
    received: AtomicU64,
    started: mpsc::SyncSender<ThreadClock>,
}

impl Meter {
    /// Reports that the calling thread's end is ready.
    pub fn start(&self) {
        // The receiver is gone if the other end has failed.
        let _ = self.started.send(ThreadClock::current());
    }

    /// Whether the sender should end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn until_stopped(&self) {
        while !self.stopped() {
            tokio::time::sleep(STEP).await;
        }
    }

    /// Adds received bytes of payload.
    pub fn count(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// When the window begins after the first byte can be sent, and how long it is.
#[derive(Clone, Copy)]
pub struct Timing {
    pub warm_up: Duration,
    pub length: Duration,
}

/// What a flow has transferred in the window.
pub struct Transferred {
    /// Megabits of payload per second.
    pub mbit: f64,
    /// Megabytes of payload per second of CPU time of both ends.
    pub mb_per_cpu: f64,
}

/// Runs flows at the same time until the window is over. Errors of an end after it was stopped are
/// ignored.
pub fn run(
    testbed: &Testbed,
    timing: Timing,
    flows: Vec<Flow<'_>>,
) -> anyhow::Result<Vec<Transferred>> {
    let (meters, clocks): (Vec<_>, Vec<_>) = flows.iter().map(|_| meter()).unzip();
    thread::scope(|scope| {
        let mut ends = Vec::new();
        for (flow, meter) in flows.into_iter().zip(&meters) {
            ends.push(scope.spawn(|| testbed.far(|| end(meter, flow.far))?));
            ends.push(scope.spawn(move || {
                thread::sleep(flow.delay);
                testbed.near(|| end(meter, flow.near))?
            }));
        }
        let measured = window(timing, &meters, &clocks);
        for meter in &meters {
            meter.stop.store(true, Ordering::Relaxed);
        }
        for end in ends {
            end.join().map_err(|_| anyhow!("an end of a flow panicked"))??;
        }
        measured
    })
}

fn meter() -> (Meter, mpsc::Receiver<ThreadClock>) {
    let (started, clocks) = mpsc::sync_channel(2);
    let meter = Meter { stop: AtomicBool::new(false), received: AtomicU64::new(0), started };
    (meter, clocks)
}

fn end(meter: &Meter, work: End<'_>) -> anyhow::Result<()> {
    match work(meter) {
        Err(error) if !meter.stopped() => Err(error),
        _ => Ok(()),
    }
}

fn window(
    timing: Timing,
    meters: &[Meter],
    clocks: &[mpsc::Receiver<ThreadClock>],
) -> anyhow::Result<Vec<Transferred>> {
    let next = |clocks: &mpsc::Receiver<ThreadClock>| {
        clocks.recv_timeout(SETUP).context("an end of a flow was not ready in time")
    };
    let ends = clocks.iter().map(|clocks| Ok([next(clocks)?, next(clocks)?]));
    let ends = ends.collect::<anyhow::Result<Vec<_>>>()?;
    let snapshot = || {
        let all = meters.iter().zip(&ends).map(|(meter, [near, far])| {
            let cpu = near.seconds()? + far.seconds()?;
            anyhow::Ok((meter.received.load(Ordering::Relaxed) as f64, cpu))
        });
        anyhow::Ok((Instant::now(), all.collect::<anyhow::Result<Vec<_>>>()?))
    };
    thread::sleep(timing.warm_up);
    let (begin, before) = snapshot()?;
    thread::sleep(timing.length);
    let (end, after) = snapshot()?;
    let seconds = (end - begin).as_secs_f64();
    let transferred = before.iter().zip(&after).map(|((bytes, cpu), (bytes_end, cpu_end))| {
        let bytes = bytes_end - bytes;
        Transferred { mbit: bytes * 8e-6 / seconds, mb_per_cpu: bytes * 1e-6 / (cpu_end - cpu) }
    });
    Ok(transferred.collect())
}

/// Runs an end's task on a new single-threaded runtime, until the flow is stopped: a sender does
/// not wait for a receiver that has gone.
pub fn block_on(
    meter: &Meter,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = tokio::time::timeout(LIMIT, task) => done.context("an end of a flow took too long")?,
            () = meter.until_stopped() => Ok(()),
        }
    });
    runtime.shutdown_background();
    done
}
