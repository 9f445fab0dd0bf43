//! The check of a catalogue that several nodes share.

use crate::commands::doctor::node::Node;
use crate::commands::doctor::report::Check;
use crate::output;

/// The engine is there, and all of its log is applied. `None` for another catalogue, or without a running node.
pub fn engine(node: &Node) -> Option<Check> {
    let Node::Runs(status) = node else { return None };
    let state = output::plain(status["catalogue_engine"].as_str()?);
    let name = "catalogue engine";
    Some(if state.contains("not applied") {
        let remedy = "docs/catalogue-cluster.md, \"Records that are not applied\"";
        Check::wrong(name, state, remedy)
    } else if state.contains("no news") {
        let remedy =
            "see that the servers in `catalogue.store` run and can be reached; reading goes on";
        Check::wrong(name, state, remedy)
    } else {
        Check::fine(name, state)
    })
}
