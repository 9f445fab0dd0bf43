//! Publishes, at even times, while something else is measured.

use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_harness::pin;

use super::levada::Levada;
use super::server::Server;

/// So many publications may be under way at once.
const MOST: usize = 16;
/// How long the last ones may take.
const END: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// Versions that were published.
    pub done: u64,
    /// Those that were refused, or not even tried because too many were under way.
    pub failed: u64,
    /// For how long, in seconds.
    pub seconds: f64,
}

/// Publishes `rate` versions a second, each by a process of its own, while `work` runs.
pub fn meanwhile<T>(
    levada: &Levada,
    server: &Server,
    rate: u32,
    work: impl FnOnce() -> T,
) -> (T, Published) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishing = scope.spawn(|| publish(levada, server, rate, &stop));
        let done = work();
        stop.store(true, Ordering::Relaxed);
        (done, publishing.join().unwrap_or_default())
    })
}

fn publish(levada: &Levada, server: &Server, rate: u32, stop: &AtomicBool) -> Published {
    // What is started there begins there: the core of servers is theirs alone. If that cannot be, it is only noisier.
    let _ = pin(super::GENERATOR);
    let begun = Instant::now();
    let mut published = Published::default();
    let mut running: Vec<Child> = Vec::new();
    let mut due = begun;
    while !stop.load(Ordering::Relaxed) {
        running.retain_mut(|child| is_running(child, &mut published));
        let started = (running.len() < MOST)
            .then(|| levada.publish(server.folder(), super::GENERATOR, &name()));
        match started {
            Some(Ok(child)) => running.push(child),
            _ => published.failed += 1,
        }
        due += Duration::from_secs(1) / rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    published.seconds = begun.elapsed().as_secs_f64();
    let last = Instant::now();
    while !running.is_empty() && last.elapsed() < END {
        running.retain_mut(|child| is_running(child, &mut published));
        thread::sleep(Duration::from_millis(5));
    }
    for mut child in running {
        published.failed += 1;
        let _ = child.kill();
        let _ = child.wait();
    }
    published
}

/// Whether it has not ended; how it ended is counted.
fn is_running(child: &mut Child, published: &mut Published) -> bool {
    match child.try_wait() {
        Ok(None) => return true,
        Ok(Some(status)) if status.success() => published.done += 1,
        _ => published.failed += 1,
    }
    false
}

/// One that was never published before: a home is used by one process of the experiment.
fn name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("Published{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}
