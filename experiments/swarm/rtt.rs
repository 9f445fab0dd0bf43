//! The time of each chunk from its request to its verified arrival, over the number of the chunk:
//! the paper's file of 116 KB in chunks of 1 KiB, five clients and a cache of 100 chunks, with
//! either transport swap. Real sockets in sequential order; random order is simulated.

use std::sync::LazyLock;

use anyhow::{Context, ensure};
use levada_harness::{Case, Group, Measured, Options, Params, params};
use serde_json::Value;

use super::mediated::{after_distribution, number};
use super::part::Process;
use super::simulated::{Once, RoundTrips, Swap};
use crate::measuring::{Measuring, Outcome};

/// The experiment's name in rows.
pub const NAME: &str = "swarm/rtt";
/// Chunks of the file, the bytes of one, those in the cache, and clients.
pub const CHUNKS: u32 = 116;
const CHUNK: u32 = 1 << 10;
const CACHE: usize = 100;
pub const CLIENTS: usize = 5;
/// Metrics must have static names.
static OF_CHUNKS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CHUNKS).map(|chunk| format!("chunk {chunk}")).collect());
static OF_CLIENTS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CLIENTS).map(|client| format!("client {client}")).collect());

/// What is compared. The paper calls its variants by the protocol of the control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub swap: Swap,
    pub blocks: bool,
    pub random: bool,
}

impl Variant {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let real = [Swap::ControlByUdp, Swap::ControlByTcp].map(|swap| (swap, false));
        // Without lost packets, a swap changes nothing in the simulator.
        let simulated = [false, true].map(|random| (Swap::None, random));
        let of = |(swap, random)| [false, true].map(|blocks| Self { swap, blocks, random });
        real.into_iter().chain(simulated).flat_map(of)
    }

    /// Whether it is simulated: links of 100 Mbit/s and 1 ms, not loopback.
    pub fn is_simulated(self) -> bool {
        self.swap == Swap::None
    }

    /// The subject of rows.
    pub fn subject(self) -> String {
        if self.is_simulated() { "levada (simulated)".into() } else { "levada".into() }
    }

    /// The conditions of rows.
    pub fn conditions(self) -> Params {
        let (control, data) = self.swap.names();
        params([
            ("control", control.into()),
            ("data", data.into()),
            ("placement", if self.blocks { "blocks" } else { "stripes" }.into()),
            ("order", if self.random { "random" } else { "sequential" }.into()),
            ("chunks", CHUNKS.into()),
            ("chunk_bytes", CHUNK.into()),
            ("cache", CACHE.into()),
            ("clients", CLIENTS.into()),
        ])
    }

    fn measure(self) -> anyhow::Result<Vec<Measured>> {
        if self.is_simulated() { self.simulate() } else { self.run() }
    }

    fn simulate(self) -> anyhow::Result<Vec<Measured>> {
        let once = Once {
            peers: CLIENTS,
            chunk: CHUNK,
            chunks: CHUNKS,
            cache: CACHE,
            random: self.random,
            swap: self.swap,
            ..Once::mediated(self.blocks)
        };
        let RoundTrips { all, time, after_distribution } = once.round_trips()?;
        measured(&all, (time, after_distribution))
    }

    fn run(self) -> anyhow::Result<Vec<Measured>> {
        let length = (CHUNKS * CHUNK).to_string();
        let chunk = CHUNK.to_string();
        let cache = CACHE.to_string();
        let count = CLIENTS.to_string();
        let udp = self.swap.udp();
        let words = ["coordinator", &length, &chunk, "--cache", &cache, "--wait", &count];
        let blocks: &[&str] = if self.blocks { &["--blocks"] } else { &[] };
        let over = ["--udp", udp];
        let mut coordinator =
            Process::start(&[&words[..], &over, &["--core", "0"], blocks].concat())?;
        let address = coordinator.line()?;
        let identity = coordinator.line()?;
        let words = ["peers", &address, &identity, &count, &length, &chunk, "--core", "1"];
        let more = ["--limit", "60", "--keep", "--trace"];
        let mut clients = Process::start(&[&words[..], &over, &more].concat())?;
        ensure!(clients.line()? == "ready", "the clients are not there");
        coordinator.state_when(|state| state["over_udp"] == CLIENTS)?;
        let ended = clients.state()?;
        let after = coordinator.state()?;
        ensure!(ended["right"] == CLIENTS, "a client has another file");
        let times = (number(&ended, "last")?, after_distribution(&ended, &after)?);
        let all = ended["round_trips"].as_array().context("no round trips")?;
        let all = all.iter().filter_map(round_trip).collect::<Vec<_>>();
        measured(&all, times)
    }
}

/// Client, chunk and seconds.
fn round_trip(value: &Value) -> Option<(usize, u32, f64)> {
    let number = |at: usize| value.get(at)?.as_u64();
    Some((number(0)? as usize, number(1)? as u32, value.get(2)?.as_f64()?))
}

/// The means of each chunk, of each client, and of all.
fn measured(all: &[(usize, u32, f64)], (time, after): (f64, f64)) -> anyhow::Result<Vec<Measured>> {
    ensure!(all.len() == CHUNKS as usize * CLIENTS, "{} round trips", all.len());
    let mean = |is: &dyn Fn(&(usize, u32, f64)) -> bool| {
        let mut sum = 0.0;
        let mut count = 0.0;
        for one in all.iter().filter(|one| is(one)) {
            (sum, count) = (sum + one.2, count + 1.0);
        }
        sum / count * 1e3
    };
    let mut rows = vec![
        Measured::new("mean", "ms", mean(&|_| true)),
        Measured::new("time", "s", time),
        Measured::new("time after distribution", "s", after),
    ];
    let clients = OF_CLIENTS.iter().enumerate();
    rows.extend(
        clients.map(|(client, name)| Measured::new(name, "ms", mean(&|one| one.0 == client))),
    );
    let chunks = OF_CHUNKS.iter().zip(0..);
    rows.extend(chunks.map(|(name, chunk)| Measured::new(name, "ms", mean(&|one| one.1 == chunk))));
    Ok(rows)
}

/// Runs the experiment.
pub fn run(options: &Options) -> anyhow::Result<Outcome> {
    let all: Vec<Variant> = Variant::all().collect();
    let mut measuring = Measuring::new(NAME, options, all.len())?;
    for variant in all {
        let at = variant.conditions();
        let subject = variant.subject();
        if measuring.needs(&at, std::slice::from_ref(&subject)) {
            let cases = vec![Case::new(subject, move || Ok(variant.measure()?))];
            measuring.group(Group { experiment: NAME, params: at, cases, monitor: None })?;
        }
    }
    Ok(measuring.finish())
}
