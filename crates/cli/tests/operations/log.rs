//! The log of a node at the level `info`.

use std::process::Stdio;

use crate::support::{Home, Node, eventually};
use serde_json::Value;

/// The fields of the only log line with this message.
fn line_of(node: &Node<'_>, message: &str) -> Value {
    eventually(message, || node.log().contains(message));
    let log = node.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| line["fields"]["message"] == message);
    let line = found.next().unwrap();
    assert!(found.next().is_none(), "{log}");
    assert_eq!(line["level"], "INFO");
    line["fields"].clone()
}

#[test]
fn the_log_has_a_line_for_the_start_and_one_for_the_stop_with_its_reason() {
    let home = Home::new();
    std::fs::write(home.path().join("config.toml"), "log_format = 'json'\n").unwrap();
    let mut node = home.up("--name well");
    let started = line_of(&node, "the node has started");
    assert_eq!(started["name"], "well");
    assert_eq!(started["identity"], home.identity());
    assert_eq!(started["addresses"], node.address());
    assert_eq!(started["services"], "clock, echo");
    home.run("stop").ok();
    crate::support::exit_code(&mut node.child);
    let stopped = line_of(&node, "the node is stopping");
    assert_eq!(stopped["identity"], home.identity());
    assert_eq!(stopped["reason"], "levada stop");
    drop(node);

    let other = Home::new();
    std::fs::write(other.path().join("config.toml"), "log_format = 'json'\n").unwrap();
    let mut node = other.up("");
    node.signal("TERM");
    crate::support::exit_code(&mut node.child);
    assert_eq!(line_of(&node, "the node is stopping")["reason"], "SIGTERM");
}

#[test]
fn a_node_serves_after_the_reader_of_its_log_has_ended() {
    let home = Home::new();
    let mut command = home.command(super::UP.split_whitespace());
    let mut node = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the node answers", || home.run("status").code == 0);
    drop(node.stderr.take());
    // Each operation writes a line.
    home.run("run well/clock").ok();
    home.run("run well/clock").ok();
    home.run("stop").ok();
    assert_eq!(node.wait().unwrap().code(), Some(0));
}
