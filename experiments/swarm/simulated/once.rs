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
use serde_json::json;

use super::{BLOCKS, DIRECT, STRIPES};

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
}

impl Once {
    /// The words of the command line for this.
    pub fn arguments(&self) -> Vec<String> {
        let mode = self.mode.to_possible_value().map(|value| value.get_name().to_owned());
        let numbers = [
            self.peers as u64,
            self.chunks.into(),
            self.chunk.into(),
            self.cache as u64,
            self.seed,
        ];
        mode.into_iter().chain(numbers.map(|number| number.to_string())).collect()
    }

    /// The subject of rows.
    pub fn subject(&self) -> &'static str {
        match self.mode {
            Mode::Direct => DIRECT,
            Mode::Stripes => STRIPES,
            Mode::Blocks => BLOCKS,
        }
    }

    fn scenario(&self) -> anyhow::Result<Scenario> {
        let length = u64::from(self.chunks) * u64::from(self.chunk);
        let geometry = Geometry::new(length, ChunkSize::new(self.chunk)?)?;
        let mut scenario = Scenario::equal(geometry, self.peers, RATE, DELAY, self.seed);
        let placement = match self.mode {
            Mode::Direct => return Ok(scenario),
            Mode::Stripes => Placement::Stripes,
            Mode::Blocks => Placement::Blocks,
        };
        let (cache, wait) = (self.cache, self.peers);
        scenario.mode =
            mode::Mode::Mediated(Settings { cache, wait, placement, ..Settings::default() });
        Ok(scenario)
    }

    /// Simulates, and prints all metrics as one JSON object.
    pub fn run(&self) -> anyhow::Result<()> {
        let scenario = self.scenario()?;
        let before = peak_memory()?;
        let outcome = run(&scenario);
        let memory = peak_memory()?.saturating_sub(before);
        ensure!(outcome.finished.len() == self.peers, "{} peers lack chunks", outcome.incomplete);
        print(&self.metrics(&scenario, &outcome, memory)?.to_string())?;
        Ok(())
    }

    fn metrics(
        &self,
        scenario: &Scenario,
        outcome: &Outcome,
        memory: u64,
    ) -> anyhow::Result<serde_json::Value> {
        let seconds = |time: Option<&Duration>| time.map(Duration::as_secs_f64).unwrap_or_default();
        let (first, last) = (seconds(outcome.finished.first()), seconds(outcome.finished.last()));
        let (peers, chunks) = (self.peers as f64, f64::from(self.chunks));
        let length = scenario.geometry.length() as f64;
        let uplink = length * 8.0 * peers / RATE as f64;
        Ok(json!({
            "time": last,
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
