//! Experiments with one condition, a number, on each subject.

use std::num::NonZero;
use std::thread;

use anyhow::Context;
use levada_harness::{Case, Group, Measured, Options, Params, params};

use super::exchange::{ONE_WAY, ROUND_TRIP, latency, read, throughput};
use super::subject::Subject;
use super::{apart, breakdown, connections, fast, one_sided, several};
use crate::measuring::{Measuring, Outcome};

/// An experiment.
pub struct Experiment {
    /// Its name in rows.
    pub name: &'static str,
    /// The name of its condition in rows.
    pub condition: &'static str,
    /// The values of the condition.
    pub values: &'static [usize],
    /// Those of a quick run.
    pub few: &'static [usize],
    /// What is measured.
    pub subjects: &'static [Subject],
    /// One run of a subject; the last parameter says whether it is quick.
    pub run: fn(Subject, usize, bool) -> anyhow::Result<Vec<Measured>>,
    /// The names and units of what it measures. The first one is shown in tables.
    pub metrics: &'static [(&'static str, &'static str)],
    /// Of the bytes after the trigger of the upgrade, the part that must go through rings with fast
    /// sockets: else a row would not be what it says.
    pub through_rings: fn(usize) -> f64,
    /// The title of its table.
    pub title: &'static str,
    /// Pairs of subjects whose first metrics are divided.
    pub ratios: &'static [(&'static str, &'static str)],
}

/// The lengths of messages in bytes: those of the paper.
const LENGTHS: [usize; 18] = {
    let mut lengths = [8; 18];
    let mut at = 1;
    while at < lengths.len() {
        lengths[at] = 2 * lengths[at - 1];
        at += 1;
    }
    lengths
};
const FEW_LENGTHS: [usize; 4] = [8, 256, 8 << 10, 1 << 20];

/// All of them.
pub const LATENCY: Experiment = Experiment {
    name: "sockets/latency",
    condition: "bytes",
    values: &LENGTHS,
    few: &FEW_LENGTHS,
    subjects: &[
        Subject::Tcp,
        Subject::TcpSpinning,
        Subject::TcpSockmap,
        Subject::Unix,
        Subject::Fast,
        Subject::FastSleeping,
        Subject::FastSpinning,
        Subject::RingSpinning,
        Subject::RingSleeping,
    ],
    run: latency,
    metrics: &ROUND_TRIP,
    through_rings: |_| 0.95,
    title: "Round trip, µs",
    ratios: &[
        ("tcp", "fast"),
        ("tcp", "fast/spinning"),
        ("tcp/spinning", "fast/spinning"),
        ("tcp", "fast/sleeping"),
        ("fast/spinning", "ring/spinning"),
        ("tcp", "ring/sleeping"),
    ],
};
pub const THROUGHPUT: Experiment = Experiment {
    name: "sockets/throughput",
    run: throughput,
    metrics: &ONE_WAY,
    title: "One direction, MB/s",
    ratios: &[
        ("fast", "tcp"),
        ("fast", "tcp/spinning"),
        ("fast", "unix"),
        ("fast", "ring/spinning"),
        ("ring/spinning", "tcp"),
    ],
    ..LATENCY
};
pub const CONNECTIONS: Experiment = Experiment {
    name: "sockets/connections",
    condition: "exchanges",
    values: &[1, 2, 3, 5, 10, 20, 50, 100],
    few: &[1, 5, 20],
    subjects: &[
        Subject::Tcp,
        Subject::Unix,
        Subject::Fast,
        Subject::FastSleeping,
        Subject::FastDirect,
    ],
    run: connections::measure,
    metrics: &connections::METRICS,
    // The upgrade itself takes some of the exchanges.
    through_rings: |exchanges| if exchanges >= 100 { 0.5 } else { 0.0 },
    title: "Connections per second",
    ratios: &[("fast", "tcp"), ("fast/sleeping", "tcp"), ("unix", "tcp"), ("fast/direct", "tcp")],
};
pub const MANY: Experiment = Experiment {
    name: "sockets/many",
    condition: "at a time",
    values: &[64],
    few: &[64],
    subjects: &[Subject::Tcp, Subject::Fast, Subject::FastDirect],
    run: connections::many,
    metrics: &connections::MANY,
    through_rings: |_| 0.0,
    title: "Connections per second, many at a time",
    ratios: &[("fast", "tcp"), ("fast/direct", "tcp")],
};
/// As `throughput`, with a receiver that reads what it has received.
pub const READ: Experiment = Experiment {
    name: "sockets/read",
    values: &[1 << 20],
    few: &[1 << 20],
    subjects: &[Subject::Tcp, Subject::TcpSpinning, Subject::TcpSockmap, Subject::Fast],
    run: read,
    title: "One direction, each byte read, MB/s",
    ratios: &[("fast", "tcp"), ("tcp/spinning", "tcp"), ("tcp/sockmap", "tcp")],
    ..THROUGHPUT
};
pub const NAGLE: Experiment = Experiment {
    name: "sockets/nagle",
    values: &[8],
    few: &[8],
    subjects: &[Subject::Tcp, Subject::TcpNagle, Subject::Fast],
    title: "One direction, with and without Nagle's algorithm",
    ratios: &[("fast", "tcp"), ("fast", "tcp/nagle")],
    ..THROUGHPUT
};
pub const CORES: Experiment = Experiment {
    name: "sockets/cores",
    condition: "pairs",
    values: &[1, 2, 4, 8, 16],
    few: &[1, 2],
    subjects: &[
        Subject::Tcp,
        Subject::Unix,
        Subject::Fast,
        Subject::RingSpinning,
        Subject::RingSleeping,
    ],
    run: several::cores,
    metrics: &ONE_WAY,
    through_rings: |_| 0.9,
    title: "Messages of 8 B between pairs of threads, MB/s in all",
    ratios: &[("fast", "tcp"), ("fast", "ring/spinning")],
};
pub const SHARING: Experiment = Experiment {
    name: "sockets/sharing",
    values: &[1, 2, 4, 8],
    few: &[1, 8],
    // An end that spins would wait for the turn of its peer.
    subjects: &[
        Subject::Tcp,
        Subject::Unix,
        Subject::Fast,
        Subject::FastSleeping,
        Subject::RingSleeping,
    ],
    run: several::sharing,
    metrics: &ROUND_TRIP,
    title: "Round trip of pairs of threads on one core, µs",
    ratios: &[("tcp", "fast"), ("tcp", "fast/sleeping"), ("tcp", "ring/sleeping")],
    ..CORES
};
/// As `sharing`, with another program on that core that never sleeps.
pub const CONTENDED: Experiment = Experiment {
    name: "sockets/contended",
    values: &[1],
    few: &[1],
    subjects: &[Subject::Tcp, Subject::Fast, Subject::FastSleeping],
    run: several::contended,
    metrics: &several::CONTENDED,
    title: "A pair of threads and a busy program on one core",
    ratios: &[("tcp", "fast"), ("fast", "fast/sleeping")],
    ..CORES
};
pub const BREAKDOWN: Experiment = Experiment {
    name: "sockets/breakdown",
    condition: "pairs",
    values: &[1],
    few: &[1],
    subjects: &[
        Subject::Tcp,
        Subject::TcpSpinning,
        Subject::Fast,
        Subject::FastSleeping,
        Subject::FastSpinning,
        Subject::FastDirect,
    ],
    run: breakdown::measure,
    metrics: &breakdown::METRICS,
    // Most of its connections are too short.
    through_rings: |_| 0.5,
    title: "What it costs, ns",
    ratios: &[],
};
pub const ONE_SIDED: Experiment = Experiment {
    name: "sockets/one-sided",
    condition: "bytes",
    values: &[8, 1 << 10, 16 << 10, 128 << 10],
    few: &[8, 128 << 10],
    // Without the library, both kinds of calls differ, too.
    subjects: &[Subject::Tcp, Subject::Fast],
    run: one_sided::measure,
    metrics: &one_sided::METRICS,
    through_rings: |_| 0.0,
    title: "The rate of calls of libc ÷ that of calls by number, without and with fast sockets at one end",
    ratios: &[("fast", "tcp")],
};
pub const ALL: [&Experiment; 11] = [
    &LATENCY,
    &THROUGHPUT,
    &READ,
    &NAGLE,
    &CONNECTIONS,
    &MANY,
    &CORES,
    &SHARING,
    &CONTENDED,
    &BREAKDOWN,
    &ONE_SIDED,
];

/// The number of pairs of threads from which on `cores` needs a core for each thread.
const CROWDED: usize = 4;

impl Experiment {
    /// The conditions of a group.
    pub fn at(&self, value: usize) -> Params {
        params([(self.condition, value.into())])
    }

    /// Returns true if this machine has the cores for a value.
    fn is_possible(&self, value: usize) -> bool {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        self.name != CORES.name || value <= CROWDED || 2 * value <= cores
    }

    /// Measures what has no rows yet.
    pub fn measure(&self, options: &Options) -> anyhow::Result<Outcome> {
        let quick = options.quick;
        let values = if quick { self.few } else { self.values };
        let (subjects, impossible): (Vec<_>, Vec<_>) =
            self.subjects.iter().copied().partition(|subject| subject.is_possible());
        for subject in impossible {
            eprintln!(
                "{subject} is left out: the kernel does not permit it; it needs root and eBPF"
            );
        }
        let names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        let mut measuring = Measuring::new(self.name, options, values.len())?;
        for value in values.iter().copied() {
            if !self.is_possible(value) {
                eprintln!("{value} pairs are left out: they need {} cores", 2 * value);
                continue;
            }
            let at = self.at(value);
            if measuring.needs(&at, &names) {
                let case = |subject: &Subject| {
                    let subject = *subject;
                    Case::new(subject.to_string(), move || Ok(self.one(subject, value, quick)?))
                };
                let cases = subjects.iter().map(case).collect();
                measuring.group(Group {
                    experiment: self.name,
                    params: at,
                    cases,
                    monitor: None,
                })?;
            }
        }
        Ok(measuring.finish())
    }

    fn one(&self, subject: Subject, value: usize, quick: bool) -> anyhow::Result<Vec<Measured>> {
        if !fast::is_fast(subject) {
            let run = self.run;
            return apart(move || run(subject, value, quick));
        }
        let values = fast::measure(self, subject, value, quick)?;
        let measured = values.into_iter().map(|(name, value)| {
            let found = self.metrics.iter().find(|(metric, _)| *metric == name);
            let &(metric, unit) = found.context("the process printed other figures")?;
            anyhow::Ok(Measured::new(metric, unit, value))
        });
        measured.collect()
    }
}
