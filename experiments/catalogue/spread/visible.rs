//! From the acknowledgement of a publication until every node shows it by HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use levada_harness::{Case, Group, Measured, Params, Row, find};

use super::super::levada::Levada;
use super::super::publisher::draft;
use super::conditions::{NAME, PUBLISHERS, SHARED, at};
use super::fleet::{Fleet, wait_until_visible};
use super::own::Publisher;
use super::publishing;
use crate::measuring::Measuring;

/// The value of `part` in rows, and the metrics.
pub const PART: &str = "visible";
pub const P50: &str = "visible on every node p50";
pub const P99: &str = "visible on every node p99";
/// The loads beside: none, and publications at half of the highest rate.
pub const LOADS: [&str; 2] = ["idle", "half"];
/// Between two publications that are followed.
const PAUSE: Duration = Duration::from_millis(10);

/// The parameters of rows with this load.
pub fn with(load: &str) -> Params {
    at(PART, [("load", load.into())])
}

/// Measures both loads; the second one only if the highest rate is known.
pub fn measure(measuring: &mut Measuring, levada: &Levada, quick: bool) -> anyhow::Result<()> {
    let subjects = [SHARED.to_owned()];
    if !LOADS.iter().any(|load| measuring.needs(&with(load), &subjects)) {
        return Ok(());
    }
    let fleet = Fleet::start(levada, 3)?;
    for load in LOADS {
        let params = with(load);
        let half = half_of_the_rate(measuring.rows());
        let beside = match (load, half) {
            ("idle", _) => 0.0,
            (_, Some(rate)) => rate,
            (_, None) => continue,
        };
        if measuring.needs(&params, &subjects) {
            let fleet = &fleet;
            let count = if quick { 60 } else { 300 };
            let case = Case::new(SHARED, move || Ok(followed(fleet, count, beside)?));
            let cases = vec![case];
            measuring.group(Group { experiment: NAME, params, cases, monitor: None })?;
        }
    }
    Ok(())
}

fn half_of_the_rate(rows: &[Row]) -> Option<f64> {
    let params = at(publishing::PART, [("publishers", PUBLISHERS.into())]);
    Some(find(rows, SHARED, publishing::RATE, &params)?.median / 2.0)
}

/// Follows `count` publications, with `beside` others per second.
fn followed(fleet: &Fleet, count: usize, beside: f64) -> anyhow::Result<Vec<Measured>> {
    let stop = AtomicBool::new(false);
    let others = if beside > 0.0 { PUBLISHERS } else { 0 };
    let publish = |number| publish_beside(fleet, number, beside / others as f64, &stop);
    let publish = &publish;
    let times = thread::scope(|scope| {
        let all: Vec<_> = (0..others).map(|number| scope.spawn(move || publish(number))).collect();
        let times = follow(fleet, count);
        stop.store(true, Ordering::Relaxed);
        for one in all {
            one.join().map_err(|_| anyhow!("a publisher panicked"))??;
        }
        times
    })?;
    let milliseconds = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    let named = [(P50, 0.5), (P99, 0.99)];
    Ok(named.map(|(name, q)| Measured::new(name, "ms", milliseconds(q))).into())
}

fn follow(fleet: &Fleet, count: usize) -> anyhow::Result<Histogram<u64>> {
    let node = fleet.nodes.first().context("there is no node")?;
    let mut publisher = Publisher::connect(node.folder())?;
    let mut times = Histogram::<u64>::new(3)?;
    for _ in 0..count {
        let draft = draft()?;
        publisher.publish(&draft)?;
        let acknowledged = Instant::now();
        let path = format!("/v1/objects/{}/latest", draft.key);
        for node in &fleet.nodes {
            wait_until_visible(node, &path)?;
        }
        times.record(u64::try_from(acknowledged.elapsed().as_nanos())?)?;
        thread::sleep(PAUSE);
    }
    Ok(times)
}

fn publish_beside(
    fleet: &Fleet,
    number: usize,
    rate: f64,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let node = &fleet.nodes[number % fleet.nodes.len()];
    let mut publisher = Publisher::connect(node.folder())?;
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        publisher.publish(&draft()?)?;
        due += Duration::from_secs_f64(1.0 / rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
