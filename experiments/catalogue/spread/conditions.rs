//! The parts of the experiment, and the names that they have in rows.

use std::time::Duration;

use clap::ValueEnum;
use levada_harness::{Params, params};

/// The experiment's name in rows.
pub const NAME: &str = "catalogue/spread";
/// Groups, for the progress bar.
pub const GROUPS: usize = 15;
/// A catalogue on several nodes, or one node of it.
pub const SHARED: &str = "levada/shared";
/// The engine alone.
pub const ENGINE: &str = "engine";
/// How many publish at a time.
pub const PUBLISHERS: usize = 16;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Reading from a node with the shared store, and from one with its own
    Reads,
    /// Reading from one, two and three nodes with a fixed share of a processor each
    Nodes,
    /// From the acknowledgement of a publication until every node shows it
    Visible,
    /// Publications per second, beside what the engine alone does with such messages
    Publishing,
    /// The start of a node without a replica, and a long package
    Start,
    /// The engine's leader is killed; all of the engine is; a node is cut off from it
    Faults,
}

/// The parameters of rows of a part.
pub fn at<const N: usize>(part: &str, more: [(&str, serde_json::Value); N]) -> Params {
    let mut all = params(more);
    all.insert("part".to_owned(), part.into());
    all
}

/// Seconds of a measurement.
pub fn seconds(full: u64, quick: bool) -> Duration {
    Duration::from_secs(if quick { full.div_ceil(3) } else { full })
}
