//! `levada id rotate`: peers follow the succession, rights of the old key end, and the old key is
//! refused.

use std::process::Stdio;

use crate::support::{Home, Ran, eventually, own_loopback};
use levada_capability::Capability;

/// The command line of a node that listens on this address.
fn up_at(address: &str) -> String {
    format!("up --demo --name well --http 127.0.0.1:0 --listen {address}")
}

#[test]
fn peers_follow_an_offline_rotation_once_and_reject_the_old_key() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up_with(&up_at(&format!("{}:0", own_loopback())));
    let up = up_at(&node.address());
    node.welcome(&alice, "well");
    let capability = alice.run("request well/clock --uses 9").ok();
    let invitation = node.invite("");
    alice.args(["connect", &capability]).ok();
    home.run("stop").ok();
    drop(node);
    let stolen = home.copy();
    let old = home.identity();

    let rotated = home.run("id rotate --yes");
    assert!(rotated.stderr.contains("names the key") || rotated.stderr.contains("name the key"));
    let new = rotated.ok();
    assert_ne!(new, old);
    assert_eq!(home.identity(), new);

    let node = home.up_with(&up);
    alice.args(["connect", &capability]).denied("belongs to another node");
    alice.run("run well/clock").ok();
    alice.args(["connect", &capability]).denied("rotated away");
    assert_eq!(alice.json("query well")["node"], new);
    // The invitation names the old key.
    Home::new().args(["join", &invitation]).fails(122, "nothing was sent");
    home.run("stop").ok();
    drop(node);

    // A node with the old key is rejected.
    let thief = stolen.up_with(&up);
    assert_eq!(thief.home.json("status")["identity"], old);
    alice.run("run well/clock").fails(122, "nothing was sent");
    alice.args(["connect", &capability]).denied("rotated away");
}

#[test]
fn peers_follow_an_online_rotation_of_a_running_node() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let own = home.run("request well/clock --uses 9").ok();
    let mut command = alice.command(["run", "well/exec", "--", "cat"]);
    let mut running = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Waiting for a child closes its input, which would end `cat`.
    let _input = running.stdin.take();
    eventually("the session runs", || home.json("status")["running_sessions"] == 1);

    let rotated = home.run("id rotate --yes");
    // The running session has no use left, so it is no capability any longer.
    assert!(rotated.stderr.contains("1 capability that this home knows of"), "{}", rotated.stderr);
    let new = rotated.ok();
    assert_ne!(running.wait_with_output().unwrap().status.code(), Some(0));
    let status = home.json("status");
    assert_eq!((&status["identity"], &status["process"]), (&new.into(), &node.process().into()));
    home.args(["connect", &own]).denied("rotated away");
    assert!(!node.log().contains("does not work on this machine"), "{}", node.log());
    home.run("run well/clock").ok();
    alice.run("run well/clock").ok();
    alice.run("run well/clock").ok();
}

#[test]
fn peers_that_missed_two_rotations_follow_both() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up("--name well");
    node.welcome(&alice, "well");
    let first = home.identity();
    let second = home.run("id rotate --yes").ok();
    let third = home.run("id rotate --yes").ok();
    assert!(first != second && second != third);
    alice.run("run well/clock").ok();
    assert_eq!(alice.json("query well")["node"], third);

    // The same for a guest that has rotated twice since its last connection.
    alice.run("id rotate --yes").ok();
    alice.run("id rotate --yes").ok();
    alice.run("run well/clock").ok();
}

#[test]
fn sessions_requested_with_a_stolen_key_end_with_its_rotation() {
    let home = Home::new();
    let alice = Home::new();
    let thief = Home::new();
    let friend = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let stolen = alice.copy();
    let request = |by: &Home, holder: &Home| {
        by.args(["request", "well/exec", "--uses", "9", "--for", &holder.identity(), "--", "cat"])
    };
    let taken = request(&stolen, &thief).ok();
    let given = request(&alice, &friend).ok();
    let kept = Capability::from_text(&given).unwrap().session().to_string();
    let lost = Capability::from_text(&taken).unwrap().session().to_string();
    let hold = |by: &Home, capability: &str| {
        let mut command = by.command(["connect", capability]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        (child.stdin.take(), child)
    };
    let (_input, ended) = hold(&thief, &taken);
    let (friends_input, kept_client) = hold(&friend, &given);
    eventually("both run", || home.json("status")["running_sessions"] == 2);

    // Without a terminal, `rotate` lists the sessions that would end, and asks for `--yes`.
    alice.run("id rotate").fails(2, "--yes");
    let unknown = "00000000000000000000000000000000";
    alice.args(["id", "rotate", "--yes", "--keep", unknown]).fails(2, unknown);
    let rotated = alice.args(["id", "rotate", "--yes", "--keep", &kept[..8]]);
    assert!(rotated.stderr.contains(&format!("{kept} is kept")), "{}", rotated.stderr);
    assert!(rotated.stderr.contains(&format!("{lost} will end")), "{}", rotated.stderr);
    rotated.ok();
    // The node learns of the rotation at once.
    Ran::from(ended.wait_with_output().unwrap()).denied("the node ended the session");
    thief.args(["connect", &taken]).denied("revoked");
    drop(friends_input);
    assert!(kept_client.wait_with_output().unwrap().status.success());
    friend.with_input(&format!("connect {given}"), b"x").ok();

    // The kept session belongs to the new key, and ends with it.
    let rotated = alice.run("id rotate --yes");
    assert!(
        rotated.stderr.contains(&format!("{kept} will end: well/exec for")),
        "{}",
        rotated.stderr
    );
    friend.with_input(&format!("connect {given}"), b"x").denied("revoked");
}

#[test]
fn a_rotated_guest_keeps_its_access_and_its_old_key_loses_it() {
    let home = Home::new();
    let alice = Home::new();
    let bob = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    home.args(["peers", "add", "alice", &alice.identity()]).ok();
    let held = alice.run("request well/clock --uses 9").ok();
    let passed_on = ["grant", &held, "--to", &bob.identity(), "--rights", "x"];
    let passed_on = alice.args(passed_on).ok();
    bob.args(["connect", &passed_on]).ok();
    let stolen = alice.copy();
    let mut command = stolen.command(["run", "well/exec", "--", "cat"]);
    let mut running = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Waiting for a child closes its input, which would end `cat`.
    let _input = running.stdin.take();
    eventually("the session runs", || home.json("status")["running_sessions"] == 1);

    let rotated = alice.run("id rotate --yes");
    assert!(rotated.stderr.contains("1 capability that this home knows of"), "{}", rotated.stderr);
    rotated.ok();
    // The node learns of the rotation with the first operation, and moves its name to the new key.
    alice.run("run well/clock").ok();
    let peers = home.json("peers ls")["peers"].take();
    let named = peers.as_array().unwrap().iter().find(|peer| peer["name"] == "alice").unwrap();
    assert_eq!(named["identity"], alice.identity());
    alice.args(["connect", &held]).denied("bound to another identity");
    bob.args(["connect", &passed_on]).denied("revoked");

    // Sessions of the old key end, and it gets no new ones.
    Ran::from(running.wait_with_output().unwrap()).denied("rotated");
    stolen.run("run well/clock").denied("rotated");
    stolen.run("request well/clock").denied("rotated");
    stolen.args(["connect", &held]).denied("rotated");
    // The old key cannot name another successor.
    stolen.run("id rotate --yes").ok();
    stolen.run("run well/clock").denied("may not request");
    alice.run("run well/clock").ok();
}
