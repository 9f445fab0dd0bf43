//! Shares in the simulator, which runs the state machines of coordinator and peers. Each run takes
//! the next seed, in a process of its own, so that its memory is known. Times are simulated: no
//! machine changes them. CPU time and memory are those of the simulation.

mod once;
mod swap;

use std::cell::Cell;
use std::env;
use std::process::Command;

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use serde_json::Value;

pub use once::{Mode, Once, RoundTrips};
pub use swap::Swap;

use crate::measuring::{Measuring, Outcome};

/// The subjects.
pub const DIRECT: &str = "direct (simulated)";
pub const STRIPES: &str = "mediated, stripes (simulated)";
pub const BLOCKS: &str = "mediated, blocks (simulated)";
pub const FIXED_TIMERS: &str = "mediated, fixed timers of 1 and 5 s (simulated)";
/// A chunk of 64 KiB, and one as in the paper.
const CHUNK: u32 = 64 << 10;
const SMALL_CHUNK: u32 = 1 << 10;
/// The chunks of the paper's large file.
pub const LARGE: u32 = 103_000;

/// The arguments of [`SCALE`].
#[derive(clap::Args)]
pub struct ScaleArguments {
    #[command(flatten)]
    pub options: Options,
    /// Also 10,000 peers with 1,000 chunks: each run takes a quarter of an hour, and the first does
    /// not count
    #[arg(long)]
    largest: bool,
}

impl ScaleArguments {
    /// The experiment.
    pub fn experiment(&self) -> &'static Experiment {
        if self.largest { &SCALE_WITH_LARGEST } else { &SCALE }
    }
}

/// One experiment: its name in rows, and its points.
pub struct Experiment {
    pub name: &'static str,
    points: fn(quick: bool) -> Vec<Once>,
    pub metrics: &'static [(&'static str, &'static str)],
}

/// Direct mode over the number of peers.
pub const SCALE: Experiment =
    Experiment { name: "swarm/scale", points: scale, metrics: SCALE_METRICS };

const SCALE_WITH_LARGEST: Experiment = Experiment { points: scale_with_largest, ..SCALE };

const SCALE_METRICS: &[(&str, &str)] = &[
    ("time", "s"),
    ("time ÷ fluid bound", "1"),
    ("time ÷ bound of trees", "1"),
    ("first ÷ last", "1"),
    ("source ÷ file", "1"),
    ("control messages per chunk", "1"),
    ("coordinator's messages per peer", "1"),
    ("coordinator's bytes per peer", "bytes"),
    ("CPU", "s"),
    ("memory per peer", "KiB"),
];

/// Mediated mode over the number of peers.
pub const LOAD: Experiment = Experiment {
    name: "swarm/load",
    points: load,
    metrics: &[
        ("time", "s"),
        ("time after distribution", "s"),
        ("time ÷ uplink bound", "1"),
        ("fetches ÷ chunks", "1"),
        ("CPU", "s"),
    ],
};

/// Mediated mode over the size of the cache.
pub const CACHE: Experiment =
    Experiment { name: "swarm/cache", points: cache, metrics: MEDIATED_METRICS };

const MEDIATED_METRICS: &[(&str, &str)] = &[
    ("time", "s"),
    ("time after distribution", "s"),
    ("time ÷ uplink bound", "1"),
    ("fetches ÷ chunks", "1"),
];

/// Stripes and blocks, in sequential and in random order.
pub const ORDER: Experiment =
    Experiment { name: "swarm/order", points: order, metrics: MEDIATED_METRICS };

/// The fixed timers of the paper beside those of transports, with lost packets.
pub const TIMERS: Experiment = Experiment {
    name: "swarm/timers",
    points: timers,
    metrics: &[("time", "s"), ("time after distribution", "s"), ("fetches ÷ chunks", "1")],
};

const ONE: Once = Once::direct();

fn scale(quick: bool) -> Vec<Once> {
    let few = [10, 100, 1000, 10_000].map(|peers| Once { peers, chunks: 10, ..ONE });
    let many = [10, 100, 1000].map(|peers| Once { peers, chunks: 1000, ..ONE });
    let all = few.into_iter().chain(many);
    all.filter(|one| !quick || one.peers * one.chunks as usize <= 10_000).collect()
}

fn scale_with_largest(quick: bool) -> Vec<Once> {
    let largest = Once { peers: 10_000, chunks: 1000, ..ONE };
    scale(quick).into_iter().chain([largest]).collect()
}

/// 10 MB, and a cache of 100 chunks as in the paper.
fn load(quick: bool) -> Vec<Once> {
    let peers = [5, 10, 50, 100, 500, 1000, 6500];
    let all = peers.map(|peers| Once { peers, chunks: 153, cache: 100, ..Once::mediated(false) });
    all.into_iter().filter(|one| !quick || one.peers <= 100).collect()
}

fn cache(quick: bool) -> Vec<Once> {
    let chunks = if quick { LARGE / 100 } else { LARGE };
    let mediated = Once { chunks, chunk: SMALL_CHUNK, ..Once::mediated(false) };
    let of = |peers: usize| [100, 250, 500, 1000].map(|cache| Once { peers, cache, ..mediated });
    of(50).into_iter().chain(of(100)).filter(|one| !quick || one.cache != 250).collect()
}

/// Over cache ÷ file downwards; the first is the paper's of 100 : 116.
fn order(quick: bool) -> Vec<Once> {
    let chunks = if quick { 300 } else { 1000 };
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    let of = |cache: usize| {
        ways.map(|(blocks, random)| Once {
            peers: 50,
            chunks,
            cache,
            random,
            ..Once::mediated(blocks)
        })
    };
    [chunks as usize * 100 / 116, 256, 32, 8, 1].into_iter().flat_map(of).collect()
}

/// The paper's file of 116 chunks of 1 KiB in blocks, five clients, and a cache of 100 chunks.
fn timers(quick: bool) -> Vec<Once> {
    let losses: &[f64] = if quick { &[0.01] } else { &[0.001, 0.01, 0.05] };
    let mut all = Vec::new();
    for loss in losses.iter().copied() {
        for swap in [Swap::ControlByUdp, Swap::ControlByTcp] {
            all.extend([false, true].map(|fixed_timers| Once {
                peers: 5,
                chunks: 116,
                chunk: SMALL_CHUNK,
                cache: 100,
                loss,
                swap,
                fixed_timers,
                ..Once::mediated(true)
            }));
        }
    }
    all
}

/// Runs an experiment.
pub fn run(experiment: &Experiment, options: &Options) -> anyhow::Result<Outcome> {
    let points = (experiment.points)(options.quick);
    // Without loss and in sequential order, no seed changes mediated mode.
    let is_random = ![LOAD.name, CACHE.name].contains(&experiment.name);
    let runs = if is_random { options.runs } else { Some(1) };
    let options = Options { runs, ..options.clone() };
    let mut measuring = Measuring::new(experiment.name, &options, points.len())?;
    for point in points {
        let at = conditions(&point);
        let subject = point.subject().to_owned();
        if !measuring.needs(&at, std::slice::from_ref(&subject)) {
            continue;
        }
        let seed = Cell::new(0);
        let case = Case::new(subject, || {
            seed.set(seed.get() + 1);
            Ok(measure(experiment, &Once { seed: seed.get(), ..point })?)
        });
        measuring.group(Group {
            experiment: experiment.name,
            params: at,
            cases: vec![case],
            monitor: None,
        })?;
    }
    Ok(measuring.finish())
}

/// The conditions of rows.
pub fn conditions(point: &Once) -> Params {
    let mut at = params([
        ("peers", point.peers.into()),
        ("chunks", point.chunks.into()),
        ("chunk_bytes", point.chunk.into()),
        ("rate_mbit", 100.into()),
        ("one_way_ms", 1.into()),
    ]);
    if point.mode != Mode::Direct {
        at.extend(params([("cache", point.cache.into())]));
    }
    if point.random {
        at.extend(params([("order", "random".into())]));
    }
    if point.loss > 0.0 {
        let (control, data) = point.swap.names();
        let pairs =
            [("loss", point.loss.into()), ("control", control.into()), ("data", data.into())];
        at.extend(params(pairs));
    }
    at
}

/// Runs the simulator in a child, and takes the metrics of the experiment from what it prints.
fn measure(experiment: &Experiment, point: &Once) -> anyhow::Result<Vec<Measured>> {
    let output = Command::new(env::current_exe()?)
        .args(["swarm", "simulate"])
        .args(point.arguments())
        .output()
        .context("run the simulator")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values: Value = serde_json::from_slice(&output.stdout)?;
    let metrics = experiment.metrics.iter().map(|(metric, unit)| {
        let value = values[metric].as_f64().with_context(|| format!("no {metric}"))?;
        Ok(Measured::new(metric, unit, value))
    });
    metrics.collect()
}
