//! One simulation.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use levada_harness::print;
use levada_swarm::mediated::{Placement, Settings};
use levada_swarm::mode;
use levada_swarm::simulator::{Outcome, Scenario, run};
use levada_swarm::{ChunkSize, Geometry};
use serde_json::{Value, json};

use super::{BLOCKS, CHUNK, DIRECT, FIXED_TIMERS, STRIPES, Swap};

/// The rate of each link in each direction, in bits per second.
const RATE: u64 = 100_000_000;
const DELAY: Duration = Duration::from_millis(1);

/// Who passes chunks on, and who provides which chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Direct,
    Stripes,
    Blocks,
}

/// What is simulated: equal peers that all join at the beginning.
#[derive(Args, Clone, Copy, Debug)]
pub struct Once {
    /// Who passes chunks on
    pub mode: Mode,
    /// The number of peers
    pub peers: usize,
    /// The number of chunks
    pub chunks: u32,
    /// The bytes of a chunk
    pub chunk: u32,
    /// Chunks in the coordinator's cache
    pub cache: usize,
    /// The seed of all random choices
    pub seed: u64,
    /// The probability that a packet is lost
    #[arg(long, default_value_t = 0.0)]
    pub loss: f64,
    /// Which stream goes by UDP
    #[arg(long, value_enum, default_value_t)]
    pub swap: Swap,
    /// In place of QUIC, the fixed timers of the paper
    #[arg(long)]
    pub fixed_timers: bool,
    /// Peers request chunks in random order
    #[arg(long)]
    pub random: bool,
}

/// The times of all chunks.
pub struct RoundTrips {
    /// Peer, chunk and seconds.
    pub all: Vec<(usize, u32, f64)>,
    /// Until the last peer had everything, in seconds.
    pub time: f64,
    /// Since every chunk had left the coordinator once.
    pub after_distribution: f64,
}

impl Once {
    /// One peer and one chunk, in direct mode.
    pub const fn direct() -> Self {
        Self {
            mode: Mode::Direct,
            peers: 1,
            chunks: 1,
            chunk: CHUNK,
            cache: 256,
            seed: 1,
            loss: 0.0,
            swap: Swap::None,
            fixed_timers: false,
            random: false,
        }
    }

    /// The same in mediated mode.
    pub const fn mediated(blocks: bool) -> Self {
        let mode = if blocks { Mode::Blocks } else { Mode::Stripes };
        Self { mode, ..Self::direct() }
    }

    /// The words of the command line for this.
    pub fn arguments(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let numbers = [
            self.peers as u64,
            self.chunks.into(),
            self.chunk.into(),
            self.cache as u64,
            self.seed,
        ];
        let mut words = vec![name(self.mode.to_possible_value())];
        words.extend(numbers.map(|number| number.to_string()));
        words.extend(["--loss".to_owned(), self.loss.to_string()]);
        words.extend(["--swap".to_owned(), name(self.swap.to_possible_value())]);
        for (word, is_set) in [("--fixed-timers", self.fixed_timers), ("--random", self.random)] {
            words.extend(is_set.then(|| word.to_owned()));
        }
        words
    }

    /// The subject of rows.
    pub fn subject(&self) -> &'static str {
        match self.mode {
            _ if self.fixed_timers => FIXED_TIMERS,
            Mode::Direct => DIRECT,
            Mode::Stripes => STRIPES,
            Mode::Blocks => BLOCKS,
        }
    }

    fn scenario(&self) -> anyhow::Result<Scenario> {
        let length = u64::from(self.chunks) * u64::from(self.chunk);
        let geometry = Geometry::new(length, ChunkSize::new(self.chunk)?)?;
        let (control, data) = self.swap.recovery(self.fixed_timers);
        let loss = self.loss;
        let random_order = self.random;
        let equal = Scenario::equal(geometry, self.peers, RATE, DELAY, self.seed);
        let mut scenario = Scenario { loss, control, data, random_order, ..equal };
        let placement = match self.mode {
            Mode::Direct => return Ok(scenario),
            Mode::Stripes => Placement::Stripes,
            Mode::Blocks => Placement::Blocks,
        };
        let cache = self.cache;
        let wait = self.peers;
        scenario.mode =
            mode::Mode::Mediated(Settings { cache, wait, placement, ..Settings::default() });
        Ok(scenario)
    }

    /// Simulates, and prints all metrics as one JSON object.
    pub fn run(&self) -> anyhow::Result<()> {
        let scenario = self.scenario()?;
        let before = peak_memory()?;
        let outcome = self.completed(&scenario)?;
        let memory = peak_memory()?.saturating_sub(before);
        print(&self.metrics(&scenario, &outcome, memory)?.to_string())?;
        Ok(())
    }

    /// Simulates.
    pub fn outcome(&self) -> anyhow::Result<Outcome> {
        Ok(run(&self.scenario()?))
    }

    /// Simulates, with the times of all chunks.
    pub fn round_trips(&self) -> anyhow::Result<RoundTrips> {
        let outcome = self.completed(&Scenario { trace: true, ..self.scenario()? })?;
        let time = outcome.finished.last().map(Duration::as_secs_f64).unwrap_or_default();
        let distributed = outcome.counters.distributed.context("chunks have not left")?;
        let all = outcome.round_trips.iter();
        Ok(RoundTrips {
            all: all.map(|one| (one.peer, one.index, one.took.as_secs_f64())).collect(),
            time,
            after_distribution: time - distributed.as_secs_f64(),
        })
    }

    fn completed(&self, scenario: &Scenario) -> anyhow::Result<Outcome> {
        let outcome = run(scenario);
        ensure!(outcome.finished.len() == self.peers, "{} peers lack chunks", outcome.incomplete);
        Ok(outcome)
    }

    fn metrics(
        &self,
        scenario: &Scenario,
        outcome: &Outcome,
        memory: u64,
    ) -> anyhow::Result<Value> {
        let seconds = |time: Option<&Duration>| time.map(Duration::as_secs_f64).unwrap_or_default();
        let first = seconds(outcome.finished.first());
        let last = seconds(outcome.finished.last());
        let peers = self.peers as f64;
        let chunks = f64::from(self.chunks);
        let length = scenario.geometry.length() as f64;
        let uplink = length * 8.0 * peers / RATE as f64;
        Ok(json!({
            "time": last,
            "time after distribution": last - seconds(outcome.counters.distributed.as_ref()),
            "time ÷ fluid bound": last / scenario.fluid_bound().as_secs_f64(),
            "time ÷ bound of trees": last / scenario.tree_bound().as_secs_f64(),
            "time ÷ uplink bound": last / uplink,
            "first ÷ last": first / last,
            "source ÷ file": outcome.source_bytes as f64 / length,
            "control messages per chunk": outcome.messages as f64 / (peers * chunks),
            "coordinator's messages per peer": outcome.coordinator_messages as f64 / peers,
            "coordinator's bytes per peer": outcome.coordinator_bytes as f64 / peers,
            "fetches ÷ chunks": outcome.counters.fetches as f64 / chunks,
            "CPU": cpu_seconds()?,
            "memory per peer": memory as f64 / 1024.0 / peers,
        }))
    }
}

/// The greatest resident memory so far, in bytes.
fn peak_memory() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kilobytes.context("no VmHWM")? << 10)
}

/// The CPU time of this process.
fn cpu_seconds() -> anyhow::Result<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}
