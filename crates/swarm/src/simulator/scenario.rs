//! What is simulated, and what came of it.

use std::time::Duration;

use super::faults::Faults;
use crate::Geometry;
use crate::mediated::Counters;
use crate::mode::Mode;

/// The transport that sends lost packets of a stream again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// TCP: its retransmission timeout, a round trip and 200 ms. Most losses are recovered sooner.
    /// What comes later waits.
    #[default]
    Tcp,
    /// QUIC: its probe timeout, two round trips and 25 ms (RFC 9002, section 6.2). What comes later
    /// waits.
    Quic,
    /// No transport: the receiver asks again when a fixed timer has expired, 1 s for a registration
    /// and 5 s for anything else, at whole seconds. What comes later does not wait.
    FixedTimers,
}

/// A share, its peers, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All random choices follow from it.
    pub seed: u64,
    /// Who passes chunks on.
    pub mode: Mode,
    /// The content.
    pub geometry: Geometry,
    /// The coordinator, and the source that it reads.
    pub source: SourceScenario,
    /// The one-way delay between any two parties.
    pub delay: Duration,
    /// Bytes that each chunk costs beside its own.
    pub overhead: u64,
    /// The probability that a packet is lost; a message is one packet.
    pub loss: f64,
    /// What sends lost control messages again.
    pub control: Recovery,
    /// What sends lost chunks again.
    pub data: Recovery,
    /// In mediated mode: peers request chunks in random order. Those that they provide still come
    /// first.
    pub random_order: bool,
    /// Whether [`Outcome::round_trips`] are recorded.
    pub trace: bool,
    /// The peers.
    pub peers: Vec<PeerScenario>,
    /// What goes wrong between them.
    pub faults: Faults,
    /// When the simulation ends in any case.
    pub limit: Duration,
}

/// The coordinator, and the source that it reads.
#[derive(Clone, Debug)]
pub struct SourceScenario {
    /// The uplink and the downlink of the coordinator, in bits per second.
    pub up: u64,
    /// The moment from which the source can no longer be read, because it has changed.
    pub ends: Option<Duration>,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct PeerScenario {
    /// Its uplink, in bits per second.
    pub up: u64,
    /// Its downlink, in bits per second.
    pub down: u64,
    /// When it joins.
    pub joins: Duration,
    /// When it is killed, and when it comes back with what it had, if it does.
    pub leaves: Option<(Duration, Option<Duration>)>,
    /// Whether other peers can connect to it.
    pub reachable: bool,
    /// The probability that a chunk which it sends is wrong.
    pub poison: f64,
}

/// One chunk of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The peer, by its position in the scenario.
    pub peer: usize,
    /// The chunk.
    pub index: u32,
    /// From its request, or the acceptance of its offer, until it had come.
    pub took: Duration,
}

/// Counts of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Chunks sent by all parties.
    pub sent: u64,
    /// Chunks that arrived where they were already.
    pub duplicates: u64,
    /// Chunks whose offers were declined.
    pub declined: u64,
}

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The times from joining to having all chunks, in ascending order.
    pub finished: Vec<Duration>,
    /// How many running peers have not finished.
    pub incomplete: usize,
    /// How many of these know that all that they lack is lost.
    pub lost: usize,
    /// The peers that were expelled, by their position in the scenario.
    pub expelled: Vec<usize>,
    /// Bytes of chunks that the coordinator has sent.
    pub source_bytes: u64,
    /// Chunks sent by all parties.
    pub chunks: ChunkCounts,
    /// In mediated mode, what the coordinator has read, fetched and sent.
    pub counters: Counters,
    /// Control messages.
    pub messages: u64,
    /// Those from and to the coordinator.
    pub coordinator_messages: u64,
    /// Their bytes.
    pub coordinator_bytes: u64,
    /// If they are recorded: the chunks in the order in which they came.
    pub round_trips: Vec<RoundTrip>,
    /// Simulated events.
    pub events: u64,
    /// When the simulation ended.
    pub ended: Duration,
}

impl Scenario {
    /// `count` equal peers with `rate` bits per second both ways, as the coordinator has; all join
    /// at the beginning, and nothing goes wrong.
    pub fn equal(geometry: Geometry, count: usize, rate: u64, delay: Duration, seed: u64) -> Self {
        let joins = Duration::ZERO;
        let peer = PeerScenario {
            up: rate,
            down: rate,
            joins,
            leaves: None,
            reachable: true,
            poison: 0.0,
        };
        let limit = Duration::from_secs(1_000_000);
        Self {
            seed,
            mode: Mode::Direct,
            geometry,
            source: SourceScenario { up: rate, ends: None },
            delay,
            overhead: 0,
            loss: 0.0,
            control: Recovery::default(),
            data: Recovery::default(),
            random_order: false,
            trace: false,
            peers: vec![peer; count],
            faults: Faults::default(),
            limit,
        }
    }

    /// The least time in which any scheme can bring the content to all peers, if chunks were
    /// infinitely small: max(F/u_s, F/d_min, nF/(u_s+Σu_i)) (Kumar and Ross, "Peer-assisted file
    /// distribution: the minimum distribution time").
    pub fn fluid_bound(&self) -> Duration {
        let bits = self.geometry.length() as f64 * 8.0;
        let up: f64 = self.peers.iter().map(|peer| peer.up as f64).sum();
        let slowest = self.peers.iter().map(|peer| peer.down).min().unwrap_or(u64::MAX);
        let all = bits * self.peers.len() as f64 / (self.source.up as f64 + up);
        let single = bits / (self.source.up.min(slowest).max(1) as f64);
        Duration::from_secs_f64(all.max(single))
    }

    /// The least time with whole chunks and equal uplinks: (1 + ⌊log₂ N⌋ ÷ M) · F/u (Mundinger,
    /// Weber and Weiss, "Optimal scheduling of peer-to-peer file dissemination").
    pub fn tree_bound(&self) -> Duration {
        let rounds = self.peers.len().max(1).ilog2();
        let transfer = self.geometry.length() as f64 * 8.0 / self.source.up.max(1) as f64;
        let chunks = f64::from(self.geometry.chunks().max(1));
        Duration::from_secs_f64(transfer * (1.0 + f64::from(rounds) / chunks))
    }
}
