//! `levada stop --drain`.

use std::process::Child;

use super::{start, wait_for_sessions};
use crate::support::{Home, Node, Ran, eventually};

/// A program that runs until its input ends.
fn run_cat(home: &Home) -> Child {
    start(home, &["run", "well/exec", "--", "cat"])
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

fn well(home: &Home) -> Node<'_> {
    home.up("--demo --name well")
}

#[test]
fn a_draining_node_takes_nothing_new_and_ends_with_its_last_session() {
    let home = Home::new();
    let alice = Home::new();
    let node = well(&home);
    node.welcome(&alice, "well");
    let capability = alice.run("request well/clock --uses 9").ok();
    alice.args(["connect", &capability]).ok();
    let mut client = run_cat(&alice);
    wait_for_sessions(&home, 1);
    assert_eq!(home.json("status")["draining"], false);
    let stop = start(&home, &["stop", "--drain", "1h"]);
    eventually("the node drains", || home.json("status")["draining"] == true);
    let left = home.json("status")["stops_within_seconds"].as_u64().unwrap();
    assert!((3000..=3600).contains(&left), "{left}");
    assert!(home.run("status").ok().contains("stops within"));
    for words in ["run well/clock", "request well/clock", "run well/exec -- date"] {
        alice.run(words).fails(122, "the node is about to stop");
    }
    alice.args(["connect", &capability]).fails(122, "the node is about to stop");
    home.run("run well/clock").fails(122, "the node is about to stop");
    assert_eq!(node.http("/readyz"), (503, "draining\n".to_owned()));
    // The running session goes on.
    std::io::Write::write_all(client.stdin.as_mut().unwrap(), b"last words").unwrap();
    drop(client.stdin.take());
    let ran = ended(client);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "last words"));
    ended(stop).ok();
    assert!(node.log().contains("levada stop --drain"), "{}", node.log());
    assert_eq!(node.wait(), 0);
}

#[test]
fn a_draining_node_ends_after_its_time() {
    let home = Home::new();
    let node = well(&home);
    let mut client = run_cat(&home);
    let _input = client.stdin.take();
    wait_for_sessions(&home, 1);
    let stopped = home.run("stop --drain 1s");
    assert!(stopped.stderr.contains("running sessions: 1"), "{stopped:?}");
    stopped.ok();
    assert_eq!(node.wait(), 0);
    ended(client).fails(122, "the node is stopping");
}

#[test]
fn a_stop_ends_a_draining_node_at_once() {
    let home = Home::new();
    let node = well(&home);
    let mut client = run_cat(&home);
    let _input = client.stdin.take();
    wait_for_sessions(&home, 1);
    let draining = start(&home, &["stop", "--drain"]);
    eventually("the node drains", || home.json("status")["draining"] == true);
    home.run("stop").ok();
    ended(draining).ok();
    assert_eq!(node.wait(), 0);
    ended(client).fails(122, "the node is stopping");
}
