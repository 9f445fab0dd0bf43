//! The check of groups of another node.

use levada_core::UnixTime;
use serde_json::Value;

use super::super::node::Node;
use super::super::report::Check;
use crate::output;

const NAME: &str = "groups";

/// The groups of another node were taken over and are valid. None if the node takes over none, or
/// does not run.
pub fn groups(node: &Node) -> Vec<Check> {
    let Node::Runs(status) = node else { return Vec::new() };
    let groups = &status["groups"];
    if groups.is_null() {
        return Vec::new();
    }
    let mut checks = vec![state(groups)];
    checks.extend(refused(&groups["refused"]));
    checks.extend(groups["unreachable"].as_str().map(|error| {
        let remedy = "the node retries each minute; the other node must list this identity in \
                      `readers` of its [groups], or bring a file: `levada group import`";
        let text = format!("the other node could not be asked: {}", output::plain(error));
        Check::note(NAME, text, remedy)
    }));
    checks
}

fn state(groups: &Value) -> Check {
    let set = output::plain(groups["set"].as_str().unwrap_or_default());
    let expires = groups["expires"].as_u64().map(UnixTime).map(output::time);
    match (expires, groups["expired"].as_bool()) {
        (Some(expires), Some(true)) => Check::wrong(
            NAME,
            format!("set `{set}` has expired at {expires}: its members have no rights by it"),
            "`levada group export` at the other node, and `levada group import` here if this node \
             cannot reach it",
        ),
        (Some(expires), _) => {
            let version = &groups["version"];
            Check::fine(NAME, format!("set `{set}`, version {version}, is valid until {expires}"))
        }
        (None, _) => {
            let from = output::plain(groups["from"].as_str().unwrap_or_default());
            let remedy = "`levada group export` at the other node";
            Check::note(NAME, format!("none of {from} was taken over yet"), remedy)
        }
    }
}

fn refused(refused: &Value) -> Option<Check> {
    let time = output::time(refused["time"].as_u64().map(UnixTime)?);
    let text = output::plain(refused["text"].as_str()?);
    let remedy = "find out who has signed or kept it; a new `levada group export` at the other \
                  node has a later version";
    Some(Check::wrong(NAME, format!("a set was refused at {time}: {text}"), remedy))
}
