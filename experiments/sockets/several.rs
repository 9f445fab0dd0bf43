//! Several pairs of threads at once, more than there are cores for.

use std::thread;

use anyhow::Context;
use levada_harness::Measured;

use super::exchange::{MESSAGE, round_trips, throughput};
use super::subject::Subject;

/// The rates of all pairs together, each a sender on one core and a receiver on the other.
pub fn cores(subject: Subject, pairs: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let all = at_once(pairs, move || throughput(subject, MESSAGE, quick))?;
    Ok(folded(all, 1.0))
}

/// The round trips of pairs whose threads all run on one core, as means over the pairs.
pub fn sharing(subject: Subject, pairs: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let all = at_once(pairs, move || round_trips(subject, MESSAGE, [0, 0], quick))?;
    Ok(folded(all, pairs as f64))
}

fn at_once(
    pairs: usize,
    one: impl Fn() -> anyhow::Result<Vec<Measured>> + Copy + Send + 'static,
) -> anyhow::Result<Vec<Vec<Measured>>> {
    let all: Vec<_> = (0..pairs).map(|_| thread::spawn(one)).collect();
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
