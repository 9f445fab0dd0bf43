//! What the experiment is made of, and in which order.

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use levada_harness::Options;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::bench::Bench;
use super::levada::{self, Levada};
use super::objects::Object;
use super::{balanced, large, nginx, saturation, sweep, wrk};
use crate::measuring::Outcome;

/// Round trips in µs: loopback, and that of the paper's network.
pub const RTTS: [u64; 2] = [0, 560];
/// About how many groups there are, for the progress bar alone: a sweep ends where nothing answers any more.
const GROUPS: usize = 360;
const FEW_GROUPS: usize = 80;

/// What to measure.
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

    /// The `levada` to measure; that of this workspace if not given
    #[arg(long, value_name = "FILE")]
    levada: Option<PathBuf>,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Imposed rates from 1 per second until nothing answers any more
    Sweep,
    /// How many answers per second there are at most
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
    /// Everything.
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

    /// Those that were asked for, or all.
    pub fn rtts(&self) -> Vec<u64> {
        if self.rtt.is_empty() { RTTS.to_vec() } else { self.rtt.clone() }
    }

    /// Those that were asked for, or both.
    pub fn objects(&self) -> Vec<Object> {
        if self.object.is_empty() { Object::ALL.to_vec() } else { self.object.clone() }
    }

    /// Those that were asked for, or the usual ones.
    pub fn rates(&self, usual: Vec<u32>) -> Vec<u32> {
        if self.rate.is_empty() { usual } else { self.rate.clone() }
    }

    fn subjects(&self) -> anyhow::Result<Vec<String>> {
        let all = [levada::NAME, nginx::NAME].map(str::to_owned);
        let unknown = self.subject.iter().find(|name| !all.contains(name));
        ensure!(unknown.is_none(), "there is no subject `{}`", unknown.map_or("", String::as_str));
        let asked = |name: &String| self.subject.is_empty() || self.subject.contains(name);
        Ok(all.into_iter().filter(asked).collect())
    }

    fn wants(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }
}

/// Measures it.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    allow_sockets()?;
    let subjects = arguments.subjects()?;
    let catalogue = subjects.iter().any(|name| name == levada::NAME);
    let levada = Levada::find(arguments.levada.as_deref(), catalogue)?;
    let groups = if arguments.shared.quick { FEW_GROUPS } else { GROUPS };
    let mut bench = Bench::new(levada, subjects, &arguments.shared, groups)?;
    // What is wanted of a catalogue first: the sweep is the longest.
    if arguments.wants(Part::Saturation) {
        if !bench.quick && !wrk::is_here() {
            eprintln!(
                "wrk is not here, so only the generator of this program asks in closed loops: \
                 install the Debian package wrk to have its rates beside"
            );
        }
        saturation::run(&mut bench, arguments)?;
    }
    if arguments.wants(Part::Half) {
        saturation::half(&mut bench, arguments)?;
    }
    if arguments.wants(Part::Publishing) && catalogue {
        saturation::publishing(&mut bench)?;
    }
    let both = bench.subjects.len() == 2;
    if arguments.wants(Part::Balanced) && both {
        balanced::run(&mut bench)?;
    }
    if arguments.wants(Part::Large) && catalogue {
        large::run(&mut bench)?;
    }
    if arguments.wants(Part::Sweep) {
        sweep::run(&mut bench, arguments)?;
    }
    Ok(bench.finish())
}

/// This process, and what it starts, may have as many sockets as the system allows at all.
fn allow_sockets() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
