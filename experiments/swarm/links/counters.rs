//! What the kernel counts in the nodes of a lab.

use std::fs;

use anyhow::Context;
use levada_lab::Node;

/// Bytes that the node has sent on its link, with all headers.
pub fn sent(node: &Node) -> anyhow::Result<u64> {
    let table = node.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = table.lines().find(|line| line.trim_start().starts_with("e0:"));
    let sent = line.and_then(|line| line.split_whitespace().nth(9)?.parse().ok());
    sent.context("a node has no interface e0")
}

/// Segments of TCP that were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    all: u64,
    retransmitted: u64,
}

impl Segments {
    /// Those of these nodes together, so far.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> anyhow::Result<Self> {
        let mut sum = Self::default();
        for node in nodes {
            let table = node.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
            sum.all += counter(&table, "OutSegs")?;
            sum.retransmitted += counter(&table, "RetransSegs")?;
        }
        Ok(sum)
    }

    /// Those that were sent since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        let retransmitted = self.retransmitted - earlier.retransmitted;
        Self { all: self.all - earlier.all, retransmitted }
    }

    /// The share of those that were sent again; acknowledgements without data count as segments,
    /// too.
    pub fn retransmitted_share(self) -> f64 {
        self.retransmitted as f64 / self.all.max(1) as f64
    }
}

/// A counter of TCP: the first line with `Tcp:` has the names, the second one the values.
fn counter(table: &str, name: &str) -> anyhow::Result<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = lines.next().zip(lines.next()).context("no counters of TCP")?;
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let value = pairs.find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok());
    value.with_context(|| format!("no counter {name}"))
}
