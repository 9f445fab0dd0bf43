//! The parts of the experiment and their order.

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use levada_harness::Options;

use super::bench::Bench;
use super::levada::{self, Levada};
use super::objects::Object;
use super::{balanced, large, nginx, saturation, sweep, wrk};
use crate::limits::allow_sockets;
use crate::measuring::Outcome;

/// Round trips in µs: loopback, and that of the paper's network.
pub const RTTS: [u64; 2] = [0, 560];
/// The approximate number of groups, for the progress bar: a sweep ends at saturation.
const GROUPS: usize = 360;
const FEW_GROUPS: usize = 80;

/// The conditions and subjects to measure.
#[derive(Args)]
pub struct Arguments {
    /// Shared by all experiments.
    #[command(flatten)]
    pub shared: Options,

    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    part: Vec<Part>,

    /// Only these round trips, in µs
    #[arg(long, value_name = "US", value_delimiter = ',')]
    rtt: Vec<u64>,

    /// Only these objects
    #[arg(long, value_name = "OBJECT", value_delimiter = ',')]
    object: Vec<Object>,

    /// Only these imposed rates of the sweep, per second
    #[arg(long, value_name = "HZ", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    rate: Vec<u32>,

    /// Only these subjects: levada, nginx
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    subject: Vec<String>,

    /// The measured `levada` binary; default: that of this workspace
    #[arg(long, value_name = "FILE")]
    levada: Option<PathBuf>,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Imposed rates from 1 per second up to saturation
    Sweep,
    /// The highest rate of answers
    Saturation,
    /// At half of nginx's saturation
    Half,
    /// At half of its own saturation, while descriptors are published
    Publishing,
    /// Two and three catalogues behind nginx, one of them killed
    Balanced,
    /// A catalogue with 100,000 descriptors
    Large,
}

impl Arguments {
    /// All parts.
    pub fn all(shared: Options) -> Self {
        Self {
            shared,
            part: Vec::new(),
            rtt: Vec::new(),
            object: Vec::new(),
            rate: Vec::new(),
            subject: Vec::new(),
            levada: None,
        }
    }

    /// The requested round trips, or all.
    pub fn rtts(&self) -> Vec<u64> {
        if self.rtt.is_empty() { RTTS.to_vec() } else { self.rtt.clone() }
    }

    /// The requested objects, or both.
    pub fn objects(&self) -> Vec<Object> {
        if self.object.is_empty() { Object::ALL.to_vec() } else { self.object.clone() }
    }

    /// The requested rates, or `default`.
    pub fn rates(&self, default: Vec<u32>) -> Vec<u32> {
        if self.rate.is_empty() { default } else { self.rate.clone() }
    }

    fn subjects(&self) -> anyhow::Result<Vec<String>> {
        let all = [levada::NAME, nginx::NAME].map(str::to_owned);
        let unknown = self.subject.iter().find(|name| !all.contains(name));
        ensure!(unknown.is_none(), "there is no subject `{}`", unknown.map_or("", String::as_str));
        let asked = |name: &String| self.subject.is_empty() || self.subject.contains(name);
        Ok(all.into_iter().filter(asked).collect())
    }

    fn needs(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    allow_sockets()?;
    let subjects = arguments.subjects()?;
    let catalogue = subjects.iter().any(|name| name == levada::NAME);
    let levada = Levada::find(arguments.levada.as_deref(), catalogue)?;
    let groups = if arguments.shared.quick { FEW_GROUPS } else { GROUPS };
    let mut bench = Bench::new(levada, subjects, &arguments.shared, groups)?;
    // The parts with targets first; the sweep is the longest.
    if arguments.needs(Part::Saturation) {
        if !bench.quick && !wrk::is_here() {
            eprintln!(
                "wrk is not installed, so closed loops are measured by this program's generator only: \
                 install the Debian package wrk for comparison"
            );
        }
        saturation::run(&mut bench, arguments)?;
    }
    if arguments.needs(Part::Half) {
        saturation::half(&mut bench, arguments)?;
    }
    if arguments.needs(Part::Publishing) && catalogue {
        saturation::publishing(&mut bench)?;
    }
    let both = bench.subjects.len() == 2;
    if arguments.needs(Part::Balanced) && both {
        balanced::run(&mut bench)?;
    }
    if arguments.needs(Part::Large) && catalogue {
        large::run(&mut bench)?;
    }
    if arguments.needs(Part::Sweep) {
        sweep::run(&mut bench, arguments)?;
    }
    Ok(bench.finish())
}
