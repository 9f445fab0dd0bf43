//! Lists of sessions, the audit log as it grows, and the removal of old records.

use std::fs;
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{start, wait_for_sessions};
use crate::support::{Home, Ran, eventually};

fn states(home: &Home, options: &str) -> Vec<String> {
    let sessions = home.json(&format!("sessions {options}"))["sessions"].take();
    let state = |session: &Value| session["state"].as_str().unwrap().to_owned();
    sessions.as_array().unwrap().iter().map(state).collect()
}

#[test]
fn sessions_are_listed_by_their_states_and_conditions() {
    let home = Home::new();
    let [alice, bob] = [Home::new(), Home::new()];
    let node = home.up("--demo --name well");
    for (guest, name) in [(&alice, "alice"), (&bob, "bob")] {
        let code = node.invite(&format!("--name {name}"));
        guest.args(["join", &code, "--as", "well"]).ok();
    }
    let mut client = start(&alice, &["run", "well/exec", "--", "cat"]);
    let input = client.stdin.take();
    wait_for_sessions(&home, 1);
    alice.run("run well/clock").ok();
    bob.run("request well/clock").ok();
    let other = bob.run("request well/echo --uses 2").ok();
    bob.args(["terminate", &other]).ok();
    wait_for_sessions(&home, 1);
    assert_eq!(states(&home, "")[0], "running");
    let mut others = states(&home, "")[1..].to_vec();
    others.sort();
    assert_eq!(others, ["ready", "terminated", "used up"]);
    assert_eq!(states(&home, "--running"), ["running"]);
    assert_eq!(states(&home, "--running --by bob"), Vec::<String>::new());
    let mut of_alice = states(&home, "--by alice");
    of_alice.sort();
    assert_eq!(of_alice, ["running", "used up"]);
    assert_eq!(states(&home, "--by bob --service clock"), ["ready"]);
    assert_eq!(states(&home, "--service clock --since 1h").len(), 2);
    assert_eq!(states(&home, "--since 2100-01-01T00:00:00Z"), ["running"; 0]);
    assert_eq!(states(&home, "--limit 1"), ["running"]);
    home.run("sessions --since yesterday").fails(2, "2026-11-30T12:00:00Z");
    home.run("sessions --by unknown-guest").fails(2, "unknown-guest");
    home.run("sessions --follow").fails(2, "--log");
    let table = home.run("sessions --by alice").ok();
    assert!(table.contains("running") && table.contains("alice ("), "{table}");
    let log = home.json("sessions --log --by bob --service clock")["log"].take();
    let log: Vec<_> = log.as_array().unwrap().iter().map(|one| &one["operation"]).collect();
    assert_eq!(log, ["request"]);
    drop(input);
    assert_eq!(Ran::from(client.wait_with_output().unwrap()).code, 0);
    eventually("the session is used up", || states(&home, "--running").is_empty());
    eventually("the end is in the log", || node.log().contains("session ended"));
    drop(node);
}

/// A `levada sessions --log --follow` in the background.
struct Follower {
    child: Child,
    folder: TempDir,
}

impl Follower {
    /// Returns when it has printed its first entry.
    fn start(home: &Home, options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        let words = ["sessions", "--log", "--follow"].into_iter();
        let mut command = home.command(words.chain(options.split_whitespace()));
        command.stdout(fs::File::create(&output).unwrap()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        eventually("the first entry", || fs::metadata(&output).unwrap().len() > 0);
        Self { child, folder }
    }

    /// The entries that it has printed until the node has ended.
    fn ended(self) -> String {
        let ran = Ran::from(self.child.wait_with_output().unwrap());
        ran.fails(0, "the node has ended");
        fs::read_to_string(self.folder.path().join("output")).unwrap()
    }
}

#[test]
fn the_audit_log_is_followed_until_the_node_ends() {
    let home = Home::new();
    let node = home.up("--demo --name well");
    home.run("run well/clock").ok();
    let json = Follower::start(&home, "--json");
    let text = Follower::start(&home, "--limit 1");
    let clock = Follower::start(&home, "--json --service clock");
    let mut client = start(&home, &["run", "well/exec", "--", "cat"]);
    let _input = client.stdin.take();
    wait_for_sessions(&home, 1);
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    client.wait().unwrap();
    let entries: Vec<Value> =
        json.ended().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = entries.iter().map(|entry| entry["id"].as_i64().unwrap()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(entries.iter().all(|entry| entry["schema"] == 2), "{entries:?}");
    let has = |service: &str, outcome: &str| {
        entries.iter().any(|entry| entry["service"] == service && entry["outcome"] == outcome)
    };
    assert!(has("clock", "started") && has("exec", "started"), "{entries:?}");
    assert!(has("exec", "ended by the node"), "{entries:?}");
    let text = text.ended();
    assert!(text.contains("connect  started  exec"), "{text}");
    let clock = clock.ended();
    assert!(clock.contains("\"clock\"") && !clock.contains("\"exec\""), "{clock}");
}

#[test]
fn the_audit_log_has_arguments_only_on_request() {
    let home = Home::new();
    let service = |name: &str, more: &str| {
        format!(
            "[[service]]\nname = '{name}'\ntype = 'exec'\n{more}\n\
             [[service.command]]\nprogram = 'echo'\nargs = '.*'\n"
        )
    };
    let config = service("quiet", "") + &service("told", "audit_arguments = true");
    fs::write(home.path().join("config.toml"), config).unwrap();
    let node = home.up("--name well");
    for name in ["quiet", "told"] {
        home.args(["run", &format!("well/{name}"), "--", "echo", "a b", "c"]).ok();
    }
    let text = |name: &str| {
        let log = home.json(&format!("sessions --log --service {name}"))["log"].take();
        let start = log.as_array().unwrap().iter().find(|entry| entry["operation"] == "connect");
        start.unwrap()["text"].as_str().unwrap().to_owned()
    };
    assert_eq!((text("quiet").as_str(), text("told").as_str()), ("echo", "echo 'a b' c"));
    drop(node);
}

#[test]
fn records_are_removed_after_their_retention() {
    let home = Home::new();
    let alice = Home::new();
    let config = home.path().join("config.toml");
    fs::write(&config, "session_expires = '1s'\n[retention]\nsessions = '1s'\n").unwrap();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let expired = alice.run("request well/clock --uses 2").ok();
    let kept = alice.run("request well/clock --uses 2 --expires 1h").ok();
    alice.args(["connect", &kept]).ok();
    eventually("it expires", || states(&home, "").contains(&"expired".to_owned()));
    alice.args(["connect", &expired]).denied("expired");
    eventually("it is removed", || {
        node.signal("HUP");
        states(&home, "") == ["ready"]
    });
    alice.args(["connect", &expired]).denied("no session of this capability");
    alice.args(["connect", &kept]).ok();
    let log = home.json("sessions --log")["log"].take();
    let removed = log.as_array().unwrap().iter().find(|entry| entry["operation"] == "prune");
    let text = removed.unwrap()["text"].as_str().unwrap();
    assert!(text.starts_with("sessions that expired until "), "{text}");
    home.run("doctor").ok();
    // It stays unknown after a restart, and after the owner has confirmed the clock.
    home.run("stop").ok();
    drop(node);
    let node = home.up_with(super::UP);
    home.run("doctor --accept-clock").ok();
    alice.args(["connect", &expired]).denied("no session of this capability");
    drop(node);
}
