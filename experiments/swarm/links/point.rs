//! What is measured: the file, the links, and what goes wrong.

use std::time::Duration;

use levada_harness::{Params, params};
use serde_json::Value;

/// The rate of each link in each direction, in Mbit/s.
pub const RATE_MBIT: u64 = 100;
/// What TCP carries of the rate of a link, of packets of 1,500 bytes.
pub const PRACTICAL: f64 = 0.956;
/// The subjects.
pub const LEVADA: &str = "levada";
pub const LIBTORRENT: &str = "libtorrent";
/// As its manual advises for seeding.
pub const TUNED: &str = "libtorrent, tuned";
pub const NGINX: &str = "nginx";
/// `levada share --mode mediated`.
pub const MEDIATED: &str = "levada, mediated";
/// The chunks of short files, in KiB.
const CHUNKS_KIB: [u32; 4] = [4, 16, 64, 256];
/// Uplinks in Mbit/s: `exp(uniform(ln 5, ln 100))` of Python's `random.Random` with the seeds 1, 2
/// and 3.
const UPLINKS: [[f64; 8]; 3] = [
    [7.5, 63.3, 49.3, 10.7, 22.1, 19.2, 35.2, 53.1],
    [87.7, 85.5, 5.9, 6.4, 61.1, 45.3, 37.2, 12.6],
    [10.2, 25.5, 15.1, 30.5, 32.6, 6.1, 5.2, 61.5],
];
/// How long the source is cut off, in seconds.
const BLACKOUTS_S: [u64; 5] = [0, 5, 10, 20, 30];
/// When that begins.
pub const BLACKOUT_AT: Duration = Duration::from_secs(3);

/// What differs from one point to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// All links are alike.
    Equal,
    /// A short file in chunks of so many KiB, to two groups of clients, one after the other.
    Short(u32),
    /// Uplinks of clients differ.
    Uneven(usize),
    /// No other can connect to three of the clients.
    Unreachable,
    /// The source is cut off for so many seconds.
    Blackout(u64),
}

/// One file on its way to all clients.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub scenario: Scenario,
    /// The file.
    pub bytes: u64,
}

impl Point {
    /// All points.
    pub fn all(quick: bool) -> Vec<Self> {
        let long = if quick { 20_000_000 } else { 100_000_000 };
        let point = |scenario| {
            let bytes = match scenario {
                Scenario::Short(_) => 20_000_000,
                Scenario::Uneven(_) => 60_000_000,
                Scenario::Blackout(_) => 100_000_000,
                Scenario::Equal | Scenario::Unreachable => long,
            };
            Self { scenario, bytes }
        };
        let short = CHUNKS_KIB.map(Scenario::Short);
        let uneven = (0..UPLINKS.len()).map(Scenario::Uneven);
        let blackouts = BLACKOUTS_S.map(Scenario::Blackout);
        let all = [Scenario::Equal, Scenario::Unreachable].into_iter();
        all.chain(short).chain(uneven).chain(blackouts).map(point).collect()
    }

    /// The name of the scenario.
    pub fn name(self) -> &'static str {
        match self.scenario {
            Scenario::Equal => "equal",
            Scenario::Short(_) => "short",
            Scenario::Uneven(_) => "uneven",
            Scenario::Unreachable => "unreachable",
            Scenario::Blackout(_) => "blackout",
        }
    }

    /// The conditions of its rows.
    pub fn conditions(self) -> Params {
        let mut all = params([
            ("scenario", self.name().into()),
            ("clients", self.clients().into()),
            ("bytes", self.bytes.into()),
            ("rate_mbit", RATE_MBIT.into()),
            ("disk", "memory (tmpfs)".into()),
        ]);
        let more: Option<(&str, Value)> = match self.scenario {
            Scenario::Equal | Scenario::Unreachable => None,
            Scenario::Short(kib) => Some(("chunk_kib", kib.into())),
            Scenario::Uneven(at) => Some(("seed", (at + 1).into())),
            Scenario::Blackout(seconds) => Some(("blackout_s", seconds.into())),
        };
        all.extend(more.map(|(key, value)| (key.to_owned(), value)));
        all
    }

    /// What is compared.
    pub fn subjects(self) -> Vec<String> {
        let names: &[&str] = match self.scenario {
            Scenario::Equal => &[LEVADA, LIBTORRENT, TUNED, NGINX, MEDIATED],
            Scenario::Short(64) | Scenario::Uneven(_) | Scenario::Unreachable => {
                &[LEVADA, LIBTORRENT, TUNED]
            }
            Scenario::Short(_) | Scenario::Blackout(_) => &[LEVADA],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The number of clients of a group.
    pub fn clients(self) -> usize {
        match self.scenario {
            Scenario::Uneven(at) => UPLINKS[at].len(),
            _ => 10,
        }
    }

    /// The number of groups.
    pub fn groups(self) -> usize {
        if matches!(self.scenario, Scenario::Short(_)) { 2 } else { 1 }
    }

    /// The chunk in KiB.
    pub fn chunk_kib(self) -> u32 {
        if let Scenario::Short(kib) = self.scenario { kib } else { 64 }
    }

    /// The uplink of a client in Mbit/s.
    pub fn uplink(self, client: usize) -> f64 {
        match self.scenario {
            Scenario::Uneven(at) => UPLINKS[at][client],
            _ => RATE_MBIT as f64,
        }
    }

    /// Whether others can connect to a client.
    pub fn is_reachable(self, client: usize) -> bool {
        self.scenario != Scenario::Unreachable || client >= 3
    }

    /// The least time in seconds in which all clients can have the file: the source's link carries
    /// it once, each client's too, and all uplinks together all copies.
    pub fn bound(self) -> f64 {
        let rate = |mbit: f64| mbit * 1e6 / 8.0;
        let bytes = self.bytes as f64;
        let clients = self.clients();
        let source = rate(RATE_MBIT as f64);
        let uplinks: f64 = (0..clients).map(|client| rate(self.uplink(client))).sum();
        (bytes / source).max(clients as f64 * bytes / (source + uplinks)) / PRACTICAL
    }

    /// The time in seconds in which the source's link carries all copies.
    pub fn uplink_bound(self) -> f64 {
        self.clients() as f64 * self.bytes as f64 * 8.0 / (RATE_MBIT as f64 * 1e6) / PRACTICAL
    }
}
