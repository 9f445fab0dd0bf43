//! What readers and publishers notice when the engine's leader is killed, and when all of the engine is.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use levada_harness::{Case, Group, Measured};

use super::super::fetch;
use super::super::generator::{self, Load, Plan, Reuse};
use super::super::levada::{self, Levada};
use super::super::objects::Object;
use super::super::publisher::draft;
use super::super::server::Server;
use super::conditions::{NAME, PUBLISHERS, SHARED, at, seconds};
use super::engine::SERVERS;
use super::fleet::Fleet;
use super::own::Publisher;
use crate::measuring::Measuring;
use crate::testbed::Testbed;

/// The values of `part` in rows, and the metrics.
pub const LEADER: &str = "leader killed";
pub const ALL: &str = "engine killed";
pub const STOPPED: &str = "publishing stopped for";
pub const NEWS: &str = "a node's news stopped for";
pub const REFUSED: &str = "until a publication fails";
pub const FAILED: &str = "failed reads";
pub const READS: &str = "reads";
/// Reads of each node per second.
const READ_RATE: u32 = 200;
/// Before a server is killed.
const BEFORE: Duration = Duration::from_secs(1);
/// Between two attempts of a publisher, and between two looks at a node's number of changes.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Measures both.
pub fn measure(measuring: &mut Measuring, levada: &Levada, quick: bool) -> anyhow::Result<()> {
    let subjects = [SHARED.to_owned()];
    let (leader, all) = (at(LEADER, []), at(ALL, []));
    if measuring.needs(&leader, &subjects) {
        let mut fleet = Fleet::start(levada, 3)?;
        let length = BEFORE + seconds(20, quick);
        let case = Case::new(SHARED, || Ok(without_leader(&mut fleet, length)?));
        let cases = vec![case];
        measuring.group(Group { experiment: NAME, params: leader, cases, monitor: None })?;
    }
    if measuring.needs(&all, &subjects) {
        let mut fleet = Fleet::start(levada, 3)?;
        let length = BEFORE + seconds(9, quick);
        let case = Case::new(SHARED, || Ok(without_engine(&mut fleet, length)?));
        let cases = vec![case];
        measuring.group(Group { experiment: NAME, params: all, cases, monitor: None })?;
    }
    Ok(())
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

    fn measured(&self) -> [Measured; 2] {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        [
            Measured::new(FAILED, "1", value(&self.failed)),
            Measured::new(READS, "1", value(&self.all)),
        ]
    }
}

/// When something happened.
#[derive(Default)]
struct Moments(Mutex<Vec<Instant>>);

impl Moments {
    fn note(&self) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(Instant::now());
    }

    /// The longest time between two of them, and between the last one and the end.
    fn longest_gap(self, end: Instant) -> f64 {
        let mut all = self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.push(end);
        all.sort();
        let gaps = all.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0]));
        gaps.max().unwrap_or_default().as_secs_f64()
    }
}

/// Kills the leader while publishers and readers go on.
fn without_leader(fleet: &mut Fleet, length: Duration) -> anyhow::Result<Vec<Measured>> {
    let victim = fleet.engine.wait_for_leader()?;
    let Fleet { nodes, engine } = fleet;
    let (reads, published, stop) = (Reads::default(), Moments::default(), AtomicBool::new(false));
    let news: Vec<Moments> = nodes.iter().map(|_| Moments::default()).collect();
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (node, news) in nodes.iter().zip(&news) {
            let (reads, address, stop) = (&reads, node.address(), &stop);
            workers.push(scope.spawn(move || reads.read(address, length)));
            workers.push(scope.spawn(move || watch(address, news, stop)));
        }
        for number in 0..PUBLISHERS {
            let (home, published, stop) = (&nodes[number % nodes.len()], &published, &stop);
            workers.push(scope.spawn(move || publish_until(home, published, stop)));
        }
        thread::sleep(BEFORE);
        let killed = engine.kill(victim);
        thread::sleep(length - BEFORE);
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        killed
    })?;
    let end = Instant::now();
    engine.start_one(victim)?;
    engine.wait_for_leader()?;
    let news = news.into_iter().map(|one| one.longest_gap(end)).fold(0.0, f64::max);
    let mut measured = vec![
        Measured::new(STOPPED, "s", published.longest_gap(end)),
        Measured::new(NEWS, "s", news),
    ];
    measured.extend(reads.measured());
    Ok(measured)
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
            published.note();
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
            news.note();
            last = now;
        }
        thread::sleep(RETRY_DELAY);
    }
    Ok(())
}

/// Kills all servers, and publishes at each node.
fn without_engine(fleet: &mut Fleet, length: Duration) -> anyhow::Result<Vec<Measured>> {
    fleet.engine.wait_for_leader()?;
    let Fleet { nodes, engine } = fleet;
    let reads = Reads::default();
    let slowest = thread::scope(|scope| {
        let mut workers = Vec::new();
        for node in nodes.iter() {
            let (reads, address) = (&reads, node.address());
            workers.push(scope.spawn(move || reads.read(address, length)));
        }
        thread::sleep(BEFORE);
        (0..SERVERS).try_for_each(|number| engine.kill(number))?;
        let mut slowest = Duration::ZERO;
        for node in nodes.iter() {
            let mut publisher = Publisher::connect(node.folder())?;
            let start = Instant::now();
            let refused = publisher.publish(&draft()?).err();
            refused.context("a publication succeeded without the engine")?;
            slowest = slowest.max(start.elapsed());
        }
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(slowest)
    })?;
    (0..SERVERS).try_for_each(|number| engine.start_one(number))?;
    engine.wait_for_leader()?;
    let mut measured = vec![Measured::new(REFUSED, "s", slowest.as_secs_f64())];
    measured.extend(reads.measured());
    Ok(measured)
}
