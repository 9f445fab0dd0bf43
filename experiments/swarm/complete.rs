//! Whether all peers have the file in the end, with the right digest: real sockets with both
//! transport swaps, and the simulator with many seeds.

use std::ops::Range;

use anyhow::ensure;
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::mediated::number;
use super::part::Process;
use super::simulated::{Mode, Once, Swap};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/complete";
/// The subjects.
pub const REAL: [&str; 2] = ["direct", "mediated"];
pub const SIMULATED: [&str; 2] = ["direct (simulated)", "mediated (simulated)"];
/// The content in bytes, and a chunk.
const LENGTH: usize = 1_000_000;
const CHUNK: u32 = 64 << 10;
const CACHE: usize = 8;
/// Chunks of a longer content, and of a cache that holds a window.
const MANY: u32 = 500;
const WINDOW: usize = 64;
/// The loss of the simulated network.
const LOSS: f64 = 0.01;
/// The metric: peers with the right file ÷ all, in a run with real sockets or over all seeds.
pub const METRIC: &str = "complete";

fn counts(quick: bool) -> &'static [usize] {
    if quick { &[2, 10] } else { &[2, 10, 100] }
}

/// The numbers of peers that are simulated.
fn simulated_counts(quick: bool) -> Vec<usize> {
    if quick { vec![2, 10, 32, 100] } else { (2..=100).collect() }
}

fn conditions(swap: Swap, peers: &str) -> Params {
    let (control, data) = swap.names();
    params([("control", control.into()), ("data", data.into()), ("peers", peers.into())])
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let counts = counts(options.quick);
    let swaps = [Swap::ControlByUdp, Swap::ControlByTcp];
    let mut measuring = Measuring::new(NAME, options, swaps.len() * (counts.len() + 1))?;
    let seeds = if options.quick { 12 } else { 100_u64 };
    // Each run takes other seeds; those of the first do not count.
    let seeds = seeds.div_ceil(options.runs() as u64);
    for swap in swaps {
        for peers in counts.iter().copied() {
            let real = |subject: &'static str| {
                Case::new(subject, move || Ok(connected(subject == REAL[0], swap, peers)?))
            };
            group(&mut measuring, conditions(swap, &peers.to_string()), REAL.map(real).into())?;
        }
        let peers = simulated_counts(options.quick);
        let case = |subject: &'static str| {
            let peers = peers.clone();
            let mut next = 0;
            Case::new(subject, move || {
                let from = next;
                next += seeds;
                Ok(simulate(subject == SIMULATED[0], swap, &peers, from..next)?)
            })
        };
        let at = conditions(swap, "2 to 100");
        group(&mut measuring, at, SIMULATED.map(case).into())?;
    }
    Ok(measuring.finish())
}

fn group(measuring: &mut Measuring, at: Params, cases: Vec<Case<'_>>) -> anyhow::Result<()> {
    let subjects: Vec<String> = cases.iter().map(|case| case.subject.clone()).collect();
    if measuring.needs(&at, &subjects) {
        measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
    }
    Ok(())
}

fn connected(direct: bool, swap: Swap, peers: usize) -> anyhow::Result<Vec<Measured>> {
    let length = LENGTH.to_string();
    let chunk = CHUNK.to_string();
    let count = peers.to_string();
    let cache = CACHE.to_string();
    let udp = ["--udp", swap.udp()];
    let mediated = ["--cache", &cache, "--wait", &count];
    let mode: &[&str] = if direct { &[] } else { &mediated };
    let words = [&["coordinator", &length, &chunk], &udp[..], mode].concat();
    let mut coordinator = Process::start(&words)?;
    let address = coordinator.line()?;
    let identity = coordinator.line()?;
    let words = ["peers", &address, &identity, &count, &length, &chunk, "--keep", "--limit", "120"];
    let mode: &[&str] = if direct { &["--direct"] } else { &[] };
    let mut crowd = Process::start(&[&words[..], &udp, mode].concat())?;
    ensure!(crowd.line()? == "ready", "the peers are not there");
    coordinator.state_when(|state| state["over_udp"] == peers)?;
    let ended = crowd.state()?;
    Ok(vec![
        Measured::new(METRIC, "1", number(&ended, "right")? / peers as f64),
        Measured::new("first ÷ last", "1", number(&ended, "first")? / number(&ended, "last")?),
        Measured::new("time", "s", number(&ended, "last")?),
    ])
}

/// The least share of complete peers over all numbers of peers and seeds, with loss. The simulator
/// has no bytes: each chunk that arrives is right. Without loss and with more chunks, the least
/// ratio of first and last over the numbers of peers.
fn simulate(
    direct: bool,
    swap: Swap,
    peers: &[usize],
    seeds: Range<u64>,
) -> anyhow::Result<Vec<Measured>> {
    let mode = if direct { Mode::Direct } else { Mode::Stripes };
    let chunks = LENGTH.div_ceil(CHUNK as usize) as u32;
    let mut complete = 1.0_f64;
    let mut runs = 0.0;
    let mut ratio = 1.0_f64;
    for peers in peers.iter().copied() {
        let once = Once { mode, peers, swap, ..Once::direct() };
        for seed in seeds.clone() {
            let lossy = Once { chunks, cache: CACHE, loss: LOSS, seed, ..once };
            complete = complete.min(lossy.outcome()?.finished.len() as f64 / peers as f64);
            runs += 1.0;
        }
        let finished = Once { chunks: MANY, cache: WINDOW, ..once }.outcome()?.finished;
        let ends = finished.first().zip(finished.last());
        let of_ends = ends.map_or(0.0, |(first, last)| first.as_secs_f64() / last.as_secs_f64());
        ratio = ratio.min(of_ends);
    }
    Ok(vec![
        Measured::new(METRIC, "1", complete),
        Measured::new("simulations", "1", runs),
        Measured::new("first ÷ last", "1", ratio),
    ])
}
