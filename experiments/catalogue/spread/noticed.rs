//! What readers and publishers notice of a fault.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use levada_harness::Measured;

use super::super::fetch;
use super::super::generator::{self, Load, Plan, Reuse};
use super::super::levada;
use super::super::objects::Object;
use super::super::publisher::draft;
use super::super::server::Server;
use super::conditions::PUBLISHERS;
use super::own::Publisher;
use crate::testbed::Testbed;

/// The metrics.
pub const FAILED: &str = "failed reads";
pub const READS: &str = "reads";
/// Reads of each node per second.
const READ_RATE: u32 = 200;
/// Before the fault.
pub const BEFORE: Duration = Duration::from_secs(1);
/// Between two attempts of a publisher, and between two looks at a node's number of changes.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// What readers and publishers noticed.
#[derive(Default)]
pub struct Noticed {
    reads: Reads,
    published: Moments,
    news: Vec<Moments>,
}

impl Noticed {
    /// Lets `fault` happen while all of `nodes` are read, and publishers go on at `published`.
    pub fn of<T>(
        nodes: &[Server],
        published: &[Server],
        length: Duration,
        fault: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Self)> {
        let news = nodes.iter().map(|_| Moments::default()).collect();
        let noticed = Self { news, ..Self::default() };
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let result = thread::scope(|scope| {
            let noticed = &noticed;
            let stop = &stop;
            let mut workers = Vec::new();
            for (node, news) in nodes.iter().zip(&noticed.news) {
                let address = node.address();
                workers.push(scope.spawn(move || noticed.reads.read(address, length)));
                workers.push(scope.spawn(move || watch(address, news, stop)));
            }
            for node in published.iter().cycle().take(PUBLISHERS) {
                workers.push(scope.spawn(move || publish_until(node, &noticed.published, stop)));
            }
            thread::sleep(BEFORE);
            let result = fault();
            thread::sleep((start + length).saturating_duration_since(Instant::now()));
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().map_err(|_| anyhow!("a thread panicked"))??;
            }
            result
        })?;
        let end = Instant::now();
        for moments in noticed.news.iter().chain([&noticed.published]) {
            moments.note_at(end);
        }
        Ok((result, noticed))
    }

    /// The longest time in which nothing was published, in seconds.
    pub fn stopped(&self) -> f64 {
        self.published.longest_gap()
    }

    /// The longest time in which a node showed nothing new, in seconds.
    pub fn without_news(&self) -> f64 {
        self.news.iter().map(Moments::longest_gap).fold(0.0, f64::max)
    }

    /// Reads, and how many failed.
    pub fn reads(&self) -> [Measured; 2] {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        [
            Measured::new(FAILED, "1", value(&self.reads.failed)),
            Measured::new(READS, "1", value(&self.reads.all)),
        ]
    }
}

/// Reads of all nodes in the background.
#[derive(Default)]
struct Reads {
    failed: AtomicU64,
    all: AtomicU64,
}

impl Reads {
    /// Reads from a node at a fixed rate.
    fn read(&self, address: SocketAddr, length: Duration) -> anyhow::Result<()> {
        let path = Object::Descriptor.path();
        let target = fetch::target(&Testbed::Loopback, address, &path, false, false)?;
        let count = (length.as_secs_f64() * f64::from(READ_RATE)) as u32;
        let load = Load::Open { rate: READ_RATE, count };
        let plan = Plan { alone: false, ..Plan::new(load, Reuse::Many(8)) };
        let statistics = generator::run(&target, plan)?;
        self.failed.fetch_add(statistics.errors.all(), Ordering::Relaxed);
        self.all.fetch_add(statistics.answered, Ordering::Relaxed);
        Ok(())
    }
}

/// When something happened.
#[derive(Default)]
struct Moments(Mutex<Vec<Instant>>);

impl Moments {
    fn note_at(&self, moment: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(moment);
    }

    /// The longest time between two of them.
    fn longest_gap(&self) -> f64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort();
        let gaps = all.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0]));
        gaps.max().unwrap_or_default().as_secs_f64()
    }
}

/// Publishes again and again; a publication that fails is left.
fn publish_until(node: &Server, published: &Moments, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut publisher = None;
    while !stop.load(Ordering::Relaxed) {
        let mut one = match publisher.take() {
            Some(one) => one,
            None => Publisher::connect(node.folder())?,
        };
        if one.publish(&draft()?).is_ok() {
            published.note_at(Instant::now());
            publisher = Some(one);
        }
        thread::sleep(RETRY_DELAY);
    }
    Ok(())
}

/// Notes each look at which a node shows other changes than at the one before.
fn watch(address: SocketAddr, news: &Moments, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut last = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let metrics = fetch::get(&Testbed::Loopback, address, levada::METRICS, None)?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let objects = text.lines().filter(|line| line.starts_with("levada_catalogue_objects"));
        let now: Vec<String> = objects.map(str::to_owned).collect();
        if now != last {
            news.note_at(Instant::now());
            last = now;
        }
        thread::sleep(RETRY_DELAY);
    }
    Ok(())
}
