//! Several pairs of threads at once, more than there are cores for.

use std::process::Child;
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context, bail};
use levada_harness::{Measured, pin};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::exchange::{MESSAGE, named, one_way, round_trips};
use super::peer;
use super::subject::Subject;

/// The rates of all pairs together, each a receiver on one core and a sender on the next. With
/// fewer cores than threads, pairs share cores.
pub fn cores(subject: Subject, pairs: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let one = move |pair: usize| one_way(subject, MESSAGE, [2 * pair, 2 * pair + 1], quick, |_| ());
    let all = at_once(pairs, one)?;
    Ok(folded(all, 1.0))
}

/// The round trips of pairs whose threads all run on one core, as means over the pairs.
pub fn sharing(subject: Subject, pairs: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let all = at_once(pairs, move |_| round_trips(subject, MESSAGE, [0, 0], quick))?;
    Ok(folded(all, pairs as f64))
}

/// What is measured of pairs that share their core with a busy program.
pub const CONTENDED: [(&str, &str); 3] =
    [("round trip", "µs"), ("round trip p99", "µs"), ("share of the busy program", "%")];

/// The round trips as in [`sharing`], with another process on that core that never sleeps.
pub fn contended(subject: Subject, pairs: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let busy = Busy::start()?;
    let start = Instant::now();
    let before = busy.seconds()?;
    let all = sharing(subject, pairs, quick)?;
    let seconds = busy.seconds()? - before;
    let share = 100.0 * seconds / start.elapsed().as_secs_f64();
    let value = |name: &str| all.iter().find(|one| one.metric == name).map(|one| one.value);
    let trips = ["round trip", "round trip p99"].map(value);
    let [Some(middle), Some(slow)] = trips else { bail!("no round trip was measured") };
    Ok(named(&CONTENDED, [middle, slow, share]))
}

/// Uses core 0 until its parent ends it.
pub fn use_core() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    pin(0)?;
    levada_harness::print("busy\n")?;
    loop {
        std::hint::spin_loop();
    }
}

/// A process in [`use_core`], ended when dropped.
struct Busy(Child);

impl Busy {
    fn start() -> anyhow::Result<Self> {
        let (child, mut output) = peer::spawn(&["busy".into()])?;
        let busy = Self(child);
        peer::line(&mut output)?;
        Ok(busy)
    }

    /// Its CPU time so far.
    fn seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(self.0.id())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The CPU time of a process so far.
pub fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds: f64 = text.split(' ').next().context("no time")?.parse()?;
        sum += nanoseconds * 1e-9;
    }
    Ok(sum)
}

fn at_once(
    pairs: usize,
    one: impl Fn(usize) -> anyhow::Result<Vec<Measured>> + Copy + Send + 'static,
) -> anyhow::Result<Vec<Vec<Measured>>> {
    let all: Vec<_> = (0..pairs).map(|pair| thread::spawn(move || one(pair))).collect();
    let joined = all.into_iter().map(|pair| pair.join().ok().context("a pair panicked")?);
    joined.collect()
}

/// The sums of the pairs' values, divided by `divisor`.
fn folded(all: Vec<Vec<Measured>>, divisor: f64) -> Vec<Measured> {
    let add = |mut sum: Vec<Measured>, other: Vec<Measured>| {
        sum.iter_mut().zip(other).for_each(|(sum, other)| sum.value += other.value);
        sum
    };
    let mut sum = all.into_iter().reduce(add).unwrap_or_default();
    sum.iter_mut().for_each(|one| one.value /= divisor);
    sum
}
