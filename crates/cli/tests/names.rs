//! Names: nodes are found by multicast DNS on loopback, confirmed once, pinned, renamed, forgotten,
//! and not confused with other nodes.

mod join;

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

use crate::support::{Home, Node, Ran, eventually, own_loopback, own_name, until_found};
use levada_discovery::testing::{Claim, MulticastSender};
use serde_json::Value;

/// The check of multicast DNS in `levada doctor`.
fn diagnosis(home: &Home) -> Value {
    let checks = home.json("doctor")["checks"].take();
    let mut checks = checks.as_array().unwrap().clone().into_iter();
    checks.find(|check| check["name"] == "multicast").unwrap()
}

/// Waits until `levada ls` shows this key: its entry.
#[track_caller]
fn seen(home: &Home, identity: &str) -> Value {
    seen_when(home, identity, |entry| !entry.is_null())
}

/// Waits until the entry of this key in `levada ls` fits: the entry.
#[track_caller]
fn seen_when(home: &Home, identity: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut entry = Value::Null;
    eventually("ls shows the node so", || {
        entry = home.sees(identity);
        fits(&entry)
    });
    entry
}

/// Whether a pinned node has answered `ls`.
fn has_answered(entry: &Value) -> bool {
    !entry["services"].is_null()
}

/// A node with this name, in which `guest` may request, and which `guest` can find.
fn announced<'a>(home: &'a Home, name: &str, guest: &Home) -> Node<'a> {
    let node = home.up(&format!("--name {name} --allow {}", guest.identity()));
    seen(guest, &home.identity());
    node
}

fn services(entry: &Value) -> Vec<&str> {
    let services = entry["services"].as_array().unwrap().iter();
    services.map(|service| service["name"].as_str().unwrap()).collect()
}

#[test]
fn nodes_are_found_used_by_name_renamed_and_forgotten() {
    let first = Home::new();
    let second = Home::new();
    let guest = Home::new();
    let one = own_name("one");
    let two = own_name("two");
    let node = announced(&first, &one, &guest);
    let other = announced(&second, &two, &guest);
    let identity = first.identity();
    let address = node.address();
    let entry = seen(&guest, &identity);
    assert_eq!((&entry["name"], &entry["state"]), (&one.clone().into(), &"new".into()));
    assert_eq!(entry["addresses"], serde_json::json!([address]));
    assert_eq!(entry["services"], Value::Null, "a new node is not asked");

    // Without a terminal the name is refused. The error shows the key to compare, and the option
    // that accepts it.
    let refused = until_found(|| guest.run(&format!("query {one}")));
    assert!(refused.stderr.contains("--accept-new") && refused.stderr.contains(&address));
    refused.denied(&identity);
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));

    until_found(|| guest.run(&format!("run {one}/clock --accept-new"))).ok();
    guest.run(&format!("run {one}/clock")).ok();
    let entry = seen_when(&guest, &identity, has_answered);
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &false.into()));
    assert_eq!(services(&entry), ["clock", "echo"]);
    assert_eq!(seen(&guest, &second.identity())["state"], "new");
    let listing = guest.json("ls");
    assert_eq!((&listing["more"], &listing["blind"]), (&false.into(), &Value::Null));
    let peers = guest.json("peers ls")["peers"].take();
    assert_eq!((&peers[0]["name"], &peers[0]["identity"]), (&one.clone().into(), &identity.into()));
    assert_eq!(peers[0]["addresses"], serde_json::json!([address]));

    // A nickname replaces the node's own name, and stays.
    guest.run(&format!("peers rename {one} cellar")).ok();
    guest.run("run cellar/clock").ok();
    until_found(|| guest.run(&format!("query {one} --accept-new")))
        .denied("pinned here as `cellar`");
    guest.run(&format!("peers rename {one} x")).fails(2, "peers ls");
    until_found(|| guest.run(&format!("run {two}/clock --accept-new"))).ok();
    guest.run(&format!("peers rename {two} cellar")).denied("stands for");
    guest.args(["peers", "rename", "cellar", &first.identity()]).fails(2, "identity");

    guest.run("peers forget cellar").ok();
    guest.run("peers forget cellar").fails(2, "peers ls");
    assert_eq!(seen(&guest, &first.identity())["state"], "new");
    until_found(|| guest.run(&format!("query {one}"))).denied("--accept-new");
    drop(other);
}

#[test]
fn without_a_terminal_every_verb_refuses_an_unpinned_name() {
    let home = Home::new();
    let guest = Home::new();
    let name = own_name("new");
    let node = announced(&home, &name, &guest);
    let capability = guest.args(["request", &format!("{}/clock", node.at())]).ok();
    let file = guest.path().join("policy.toml");
    let key = home.identity();
    let clock = "clock";
    std::fs::write(&file, "").unwrap();
    let policy = file.display();
    let lines = [
        format!("query {name}"),
        format!("request {name}/{clock}"),
        format!("run {name}/{clock}"),
        format!("forward {name}/forward -- 127.0.0.1:9"),
        format!("ask {name}/capability --entity {key} --service {name}/{clock}"),
        format!("approve --at {name}/capability --policy {policy}"),
        format!("invoke {capability} --on {name}/invoke"),
        format!("show {name}/display -- true"),
        format!("input {name}/input"),
    ];
    // Each command browses for seconds, so they run in parallel.
    std::thread::scope(|scope| {
        for line in &lines {
            let guest = &guest;
            let key = &key;
            scope.spawn(move || {
                let ran = until_found(|| guest.run(line));
                assert!(ran.stderr.contains("--accept-new"), "{line}: {}", ran.stderr);
                ran.denied(key);
            });
        }
    });
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
}

#[test]
fn ls_prints_a_table_and_filters_by_type() {
    let home = Home::new();
    let guest = Home::new();
    let name = own_name("table");
    let _node = announced(&home, &name, &guest);
    until_found(|| guest.run(&format!("query {name} --accept-new"))).ok();
    let mut rows = String::new();
    eventually("the node is in the table", || {
        rows = guest.run("ls").ok();
        rows.lines().any(|row| row.starts_with(&name) && row.ends_with("clock, echo"))
    });
    assert!(rows.starts_with("name"), "{rows}");
    let row = rows.lines().find(|row| row.starts_with(&name)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[1], cells[2]), ("pinned", &home.identity()[..10]));
    let mut found = Value::Null;
    eventually("the node is found by the type of a service", || {
        let nodes = guest.json("ls --type echo")["nodes"].take();
        let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == name).cloned();
        found = node.unwrap_or_default();
        !found.is_null()
    });
    assert_eq!(services(&found), ["echo"]);
    assert_eq!(guest.json("ls --type nothing")["nodes"], serde_json::json!([]));
}

#[test]
fn a_name_that_two_keys_claim_is_refused() {
    let first = Home::new();
    let second = Home::new();
    let guest = Home::new();
    let name = own_name("twins");
    let node = announced(&first, &name, &guest);
    let _other = announced(&second, &name, &guest);
    for home in [&first, &second] {
        seen_when(&guest, &home.identity(), |entry| entry["state"] == "conflicting");
    }
    let mut refused = None;
    eventually("both nodes are found", || {
        let ran = guest.run(&format!("query {name} --accept-new"));
        if ran.code == 0 {
            // One of them did not answer in time.
            guest.run(&format!("peers forget {name}")).ok();
        }
        let is_refused = ran.stderr.contains("under 2 different keys");
        refused = Some(ran);
        is_refused
    });
    let refused = refused.unwrap();
    assert!(refused.stderr.contains(&first.identity()), "{}", refused.stderr);
    refused.denied(&second.identity());
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
    eventually("ls explains", || guest.run("ls").stderr.contains(&format!("conflict: `{name}`")));
    // The address that the error suggests.
    guest.args(["query", &node.at()]).ok();
    // A name that an invitation pinned stays pinned, although another node claims it.
    node.welcome(&guest, &name);
    assert_eq!(guest.sees(&first.identity())["state"], "pinned");
    assert_eq!(seen(&guest, &second.identity())["state"], "conflicting");
    assert_eq!(guest.json(&format!("query {name}"))["node"], first.identity());
}

#[test]
fn another_key_under_a_pinned_name_is_refused() {
    let home = Home::new();
    let thief = Home::new();
    let guest = Home::new();
    let name = own_name("pinned");
    let loopback = own_loopback();
    let port = std::net::TcpListener::bind((loopback.as_str(), 0)).unwrap().local_addr().unwrap();
    let up = format!("up --name {name} --listen {port} --http 127.0.0.1:0");
    let node = home.up_with(&up);
    seen(&guest, &home.identity());
    until_found(|| guest.run(&format!("query {name} --accept-new"))).ok();
    node.kill();
    let _thief = thief.up_with(&up);
    seen(&guest, &thief.identity());
    let refused = guest.run(&format!("query {name} --accept-new"));
    assert!(refused.stderr.contains("nothing was sent"), "{}", refused.stderr);
    refused.fails(122, &thief.identity());
    let entry = guest.sees(&home.identity());
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &true.into()));
    assert_eq!(seen(&guest, &thief.identity())["state"], "conflicting");
    eventually("ls explains", || {
        let ran = guest.run("ls");
        ran.code == 0 && ran.stderr.contains(&format!("conflict: `{name}` stands for"))
    });
}

/// Announces a key at an unused address repeatedly, until the returned sender is dropped.
fn announce_falsely(key: &str, address: &str) -> Sender<()> {
    let (stop, stopped) = channel();
    let claim = Claim::new("forged", "a-forged-node", key, address.parse().unwrap(), 9).packet();
    let voice = MulticastSender::new(Ipv4Addr::LOCALHOST).unwrap();
    std::thread::spawn(move || {
        while stopped.try_recv() != Err(TryRecvError::Disconnected) {
            // A full send buffer drops the packet; it is sent again.
            let _ = voice.send(&claim);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    stop
}

#[test]
fn a_node_that_has_moved_is_found_by_its_key() {
    let home = Home::new();
    let guest = Home::new();
    let other = Home::new();
    let name = own_name("moved");
    let nowhere = own_loopback();
    // Addresses that no other process uses when the node is down.
    let up = |address: String| format!("up --name {name} --listen {address}:0 --http 127.0.0.1:0");
    let node = home.up_with(&format!("{} --allow {}", up(own_loopback()), guest.identity()));
    seen(&guest, &home.identity());
    let before = node.address();
    until_found(|| guest.run(&format!("query {name} --accept-new"))).ok();
    let capability = guest.run(&format!("request {name}/clock --uses 2")).ok();
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    // After a goodbye packet, the node is away at once.
    assert_eq!(guest.sees(&home.identity())["away"], true);
    let node = home.up_with(&up(own_loopback()));
    let after = node.address();
    assert_ne!(before, after);
    seen(&other, &home.identity());
    // By capability, by name, and by the key alone. The forged address does not get into the pin.
    let _forged = announce_falsely(&home.identity(), &nowhere);
    eventually("the node is found", || guest.args(["connect", &capability]).code == 0);
    let addresses = || guest.json("peers ls")["peers"][0]["addresses"].take();
    assert_eq!(addresses(), serde_json::json!([after, before]));
    guest.run(&format!("query {name}")).ok();
    eventually("the node is found", || other.args(["query", &home.identity()]).code == 0);
    assert_eq!(other.json("peers ls")["peers"], serde_json::json!([]));
    // An explicit address is the only one that is dialled.
    guest.args(["query", &format!("{}@{before}", home.identity())]).fails(122, "unreachable");
}

#[test]
fn a_killed_node_is_not_shown() {
    let home = Home::new();
    let guest = Home::new();
    let node = announced(&home, &own_name("killed"), &guest);
    node.kill();
    // Its records have not expired, but it does not answer.
    assert_eq!(guest.sees(&home.identity()), Value::Null);
}

#[test]
fn announcing_can_be_switched_off() {
    let first = Home::new();
    let second = Home::new();
    let third = Home::new();
    let guest = Home::new();
    let _first = first.up(&format!("--name {} --no-announce", own_name("first")));
    std::fs::write(second.path().join("config.toml"), "announce = false\n").unwrap();
    let _second = second.up(&format!("--name {}", own_name("second")));
    // When this node is found, the others would have been found too.
    let _third = announced(&third, &own_name("third"), &guest);
    for home in [&first, &second] {
        assert_eq!(guest.sees(&home.identity()), Value::Null);
    }
    // `doctor` reports the missing announcement, and suggests a reason, unless the configuration
    // disables it.
    let unannounced = diagnosis(&first);
    assert_eq!(unannounced["state"], "note");
    assert!(
        unannounced["text"].as_str().unwrap().contains("does not receive its own announcement")
    );
    let remedy = unannounced["remedy"].as_str().unwrap();
    assert!(remedy.contains("--no-announce") && !remedy.contains("  "), "{remedy}");
    assert!(!diagnosis(&second)["text"].as_str().unwrap().contains("does not receive"));
    eventually("the announced node finds itself", || {
        !diagnosis(&third)["text"].as_str().unwrap().contains("does not receive")
    });
}

/// Runs `levada` on a terminal and types `answer` at its question: the output.
fn at_a_terminal(home: &Home, args: &[&str], answer: &str) -> Ran {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    let mut child = pty_process::blocking::Command::new("timeout")
        .args(["--foreground", "60", env!("CARGO_BIN_EXE_levada")])
        .args(args)
        .env("LEVADA_HOME", home.path())
        .env("NO_COLOR", "1")
        .spawn(inside)
        .unwrap();
    let mut shown = Vec::new();
    let mut buffer = [0; 1024];
    let mut answered = false;
    // The read fails when the process has ended.
    while let Ok(length @ 1..) = terminal.read(&mut buffer) {
        shown.extend(&buffer[..length]);
        if !answered && shown.ends_with(b"[y/N] ") {
            terminal.write_all(answer.as_bytes()).unwrap();
            answered = true;
        }
    }
    let code = child.wait().unwrap().code().unwrap_or(-1);
    let stderr = String::from_utf8_lossy(&shown).into_owned();
    Ran { code, stdout: String::new(), stderr }
}

#[test]
fn at_a_terminal_an_unpinned_key_needs_confirmation() {
    let home = Home::new();
    let guest = Home::new();
    let name = own_name("asked");
    let _node = announced(&home, &name, &guest);
    for no in ["n\n", "\n", "Yes, please\n"] {
        let ran = until_found(|| at_a_terminal(&guest, &["query", &name], no));
        assert!(ran.stderr.contains(&home.identity()), "{}", ran.stderr);
        ran.denied("was not accepted");
        assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
    }
    let clock = format!("{name}/clock");
    let ran = until_found(|| at_a_terminal(&guest, &["run", &clock], "y\n"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(guest.json("peers ls")["peers"][0]["identity"], home.identity());
    // A pinned key needs no confirmation.
    let ran = at_a_terminal(&guest, &["run", &clock], "");
    assert!(ran.code == 0 && !ran.stderr.contains("[y/N]"), "{}", ran.stderr);
}

#[test]
fn a_pinned_node_that_is_not_announced_is_listed() {
    let home = Home::new();
    let guest = Home::new();
    let name = own_name("hidden");
    let loopback = own_loopback();
    let up = format!("up --name {name} --listen {loopback}:0 --http 127.0.0.1:0 --no-announce");
    let node = home.up_with(&up);
    node.welcome(&guest, "hidden");
    let entry = seen_when(&guest, &home.identity(), has_answered);
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &false.into()));
    assert_eq!(services(&entry), ["clock", "echo"]);
    let address = node.address();
    node.kill();
    let away = |entry: &Value| (entry["services"].clone(), entry["away"].clone());
    assert_eq!(away(&guest.sees(&home.identity())), (Value::Null, true.into()));
    // A listener there that never answers is not waited for.
    let _hanging = std::net::TcpListener::bind(address).unwrap();
    assert_eq!(away(&guest.sees(&home.identity())), (Value::Null, true.into()));
}
