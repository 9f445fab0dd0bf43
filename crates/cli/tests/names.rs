//! Names: nodes are found by multicast on loopback, asked about once, pinned, renamed, forgotten, and not
//! mistaken for others.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

use crate::support::{Home, Node, Ran, eventually, heard, own_loopback, own_name};
use levada_discovery::testing::{Claim, MulticastSender};
use serde_json::Value;

/// What `levada doctor` says of names.
fn diagnosis(home: &Home) -> Value {
    let checks = home.json("doctor")["checks"].take();
    let mut checks = checks.as_array().unwrap().clone().into_iter();
    checks.find(|check| check["name"] == "multicast").unwrap()
}

/// Waits until `home` sees this key, and returns how.
#[track_caller]
fn seen(home: &Home, identity: &str) -> Value {
    seen_when(home, identity, |entry| !entry.is_null())
}

/// Waits until `home` sees this key so, and returns how.
#[track_caller]
fn seen_when(home: &Home, identity: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut entry = Value::Null;
    eventually("it is seen so", || {
        entry = home.sees(identity);
        fits(&entry)
    });
    entry
}

/// A pinned node that has answered.
fn has_answered(entry: &Value) -> bool {
    !entry["services"].is_null()
}

/// A node with a name of its own that lets `guest` in, and is announced by now.
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
    let (first, second, guest) = (Home::new(), Home::new(), Home::new());
    let (one, two) = (own_name("one"), own_name("two"));
    let (node, other) = (announced(&first, &one, &guest), announced(&second, &two, &guest));
    let (identity, address) = (first.identity(), node.address());
    let entry = seen(&guest, &identity);
    assert_eq!((&entry["name"], &entry["state"]), (&one.clone().into(), &"new".into()));
    assert_eq!(entry["addresses"], serde_json::json!([address]));
    assert_eq!(entry["services"], Value::Null, "a new node is not asked");

    // Nobody is at a terminal: the name is refused, with the key to compare and the way out.
    let refused = heard(|| guest.run(&format!("query {one}")));
    assert!(refused.stderr.contains("--accept-new") && refused.stderr.contains(&address));
    refused.denied(&identity);
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));

    heard(|| guest.run(&format!("run {one}/clock --accept-new"))).ok();
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

    // A nickname is ours to choose; what the node calls itself does not replace it.
    guest.run(&format!("peers rename {one} cellar")).ok();
    guest.run("run cellar/clock").ok();
    heard(|| guest.run(&format!("query {one} --accept-new"))).denied("known here as `cellar`");
    guest.run(&format!("peers rename {one} x")).fails(1, "peers ls");
    heard(|| guest.run(&format!("run {two}/clock --accept-new"))).ok();
    guest.run(&format!("peers rename {two} cellar")).denied("stands for");
    guest.args(["peers", "rename", "cellar", &first.identity()]).fails(2, "identity");

    guest.run("peers forget cellar").ok();
    guest.run("peers forget cellar").fails(1, "peers ls");
    assert_eq!(seen(&guest, &first.identity())["state"], "new");
    heard(|| guest.run(&format!("query {one}"))).denied("--accept-new");
    drop(other);
}

#[test]
fn every_verb_refuses_a_new_name_when_nobody_can_be_asked() {
    let (home, guest) = (Home::new(), Home::new());
    let name = own_name("new");
    let node = announced(&home, &name, &guest);
    let capability = guest.args(["request", &format!("{}/clock", node.at())]).ok();
    let (file, key, clock) = (guest.path().join("policy.toml"), home.identity(), "clock");
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
    // Each of them looks around for a while.
    std::thread::scope(|scope| {
        for line in &lines {
            let (guest, key) = (&guest, &key);
            scope.spawn(move || {
                let ran = heard(|| guest.run(line));
                assert!(ran.stderr.contains("--accept-new"), "{line}: {}", ran.stderr);
                ran.denied(key);
            });
        }
    });
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
}

#[test]
fn a_table_for_people_and_a_type() {
    let (home, guest) = (Home::new(), Home::new());
    let name = own_name("table");
    let _node = announced(&home, &name, &guest);
    heard(|| guest.run(&format!("query {name} --accept-new"))).ok();
    let mut rows = String::new();
    eventually("it is in the table", || {
        rows = guest.run("ls").ok();
        rows.lines().any(|row| row.starts_with(&name) && row.ends_with("clock, echo"))
    });
    assert!(rows.starts_with("name"), "{rows}");
    let row = rows.lines().find(|row| row.starts_with(&name)).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[1], cells[2]), ("pinned", &home.identity()[..10]));
    let mut found = Value::Null;
    eventually("it is found by the type of a service", || {
        let nodes = guest.json("ls --type echo")["nodes"].take();
        let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == name).cloned();
        found = node.unwrap_or_default();
        !found.is_null()
    });
    assert_eq!(services(&found), ["echo"]);
    assert_eq!(guest.json("ls --type nothing")["nodes"], serde_json::json!([]));
}

#[test]
fn a_name_that_two_keys_claim_stands_for_neither() {
    let (first, second, guest) = (Home::new(), Home::new(), Home::new());
    let name = own_name("twins");
    let (node, _other) = (announced(&first, &name, &guest), announced(&second, &name, &guest));
    for home in [&first, &second] {
        seen_when(&guest, &home.identity(), |entry| entry["state"] == "conflicting");
    }
    let mut refused = None;
    eventually("both are heard", || {
        let ran = guest.run(&format!("query {name} --accept-new"));
        if ran.code == 0 {
            // One of them was not heard in time.
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
    // The way out that the error names.
    guest.args(["query", &node.at()]).ok();
    // What an invitation pinned is pinned, whoever else claims the name.
    node.welcome(&guest, &name);
    assert_eq!(guest.sees(&first.identity())["state"], "pinned");
    assert_eq!(seen(&guest, &second.identity())["state"], "conflicting");
    assert_eq!(guest.json(&format!("query {name}"))["node"], first.identity());
}

#[test]
fn another_key_under_a_pinned_name_is_refused() {
    let (home, thief, guest) = (Home::new(), Home::new(), Home::new());
    let (name, loopback) = (own_name("pinned"), own_loopback());
    let port = std::net::TcpListener::bind((loopback.as_str(), 0)).unwrap().local_addr().unwrap();
    let up = format!("up --name {name} --listen {port} --http 127.0.0.1:0");
    let node = home.up_with(&up);
    seen(&guest, &home.identity());
    heard(|| guest.run(&format!("query {name} --accept-new"))).ok();
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

/// Announces a key at an address where nobody is, over and over, until what it returns is dropped.
fn lie(key: &str, address: &str) -> Sender<()> {
    let (stop, stopped) = channel();
    let claim = Claim::new("liar", "a-liar", key, address.parse().unwrap(), 9).packet();
    let voice = MulticastSender::new(Ipv4Addr::LOCALHOST).unwrap();
    std::thread::spawn(move || {
        while stopped.try_recv() != Err(TryRecvError::Disconnected) {
            // A full buffer is no reason to stop.
            let _ = voice.send(&claim);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    stop
}

#[test]
fn a_node_that_has_moved_is_found_by_its_key() {
    let (home, guest, stranger) = (Home::new(), Home::new(), Home::new());
    let (name, nowhere) = (own_name("moved"), own_loopback());
    // Where nobody else listens when the node is gone.
    let up = |address: String| format!("up --name {name} --listen {address}:0 --http 127.0.0.1:0");
    let node = home.up_with(&format!("{} --allow {}", up(own_loopback()), guest.identity()));
    seen(&guest, &home.identity());
    let before = node.address();
    heard(|| guest.run(&format!("query {name} --accept-new"))).ok();
    let capability = guest.run(&format!("request {name}/clock --uses 2")).ok();
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    // What said goodbye is gone at once.
    assert_eq!(guest.sees(&home.identity())["away"], true);
    let node = home.up_with(&up(own_loopback()));
    let after = node.address();
    assert_ne!(before, after);
    seen(&stranger, &home.identity());
    // By capability, by name, and by the key alone; whoever else announces that key does not get into the pin.
    let _liar = lie(&home.identity(), &nowhere);
    eventually("it is found", || guest.args(["connect", &capability]).code == 0);
    let addresses = || guest.json("peers ls")["peers"][0]["addresses"].take();
    assert_eq!(addresses(), serde_json::json!([after, before]));
    guest.run(&format!("query {name}")).ok();
    eventually("it is found", || stranger.args(["query", &home.identity()]).code == 0);
    assert_eq!(stranger.json("peers ls")["peers"], serde_json::json!([]));
    // An address that was written out is meant.
    guest.args(["query", &format!("{}@{before}", home.identity())]).fails(122, "unreachable");
}

#[test]
fn a_killed_node_is_not_shown() {
    let (home, guest) = (Home::new(), Home::new());
    let node = announced(&home, &own_name("killed"), &guest);
    node.kill();
    // Its records have not expired, but nobody answers for it.
    assert_eq!(guest.sees(&home.identity()), Value::Null);
}

#[test]
fn a_node_is_not_announced_against_its_will() {
    let (first, second, third, guest) = (Home::new(), Home::new(), Home::new(), Home::new());
    let _silent = first.up(&format!("--name {} --no-announce", own_name("silent")));
    std::fs::write(second.path().join("config.toml"), "announce = false\n").unwrap();
    let _mute = second.up(&format!("--name {}", own_name("mute")));
    // Whoever was to be heard has been by now.
    let _loud = announced(&third, &own_name("loud"), &guest);
    for home in [&first, &second] {
        assert_eq!(guest.sees(&home.identity()), Value::Null);
    }
    // Its keeper learns the same, and why it may be so; who wanted it so is not told.
    let deaf = diagnosis(&first);
    assert_eq!(deaf["state"], "note");
    assert!(deaf["text"].as_str().unwrap().contains("does not receive its own announcement"));
    let remedy = deaf["remedy"].as_str().unwrap();
    assert!(remedy.contains("--no-announce") && !remedy.contains("  "), "{remedy}");
    assert!(!diagnosis(&second)["text"].as_str().unwrap().contains("does not receive"));
    eventually("the loud one hears itself", || {
        !diagnosis(&third)["text"].as_str().unwrap().contains("does not receive")
    });
}

/// Runs `levada` at a terminal of its own, types `answer` when asked, and gives what the terminal showed.
fn at_a_terminal(home: &Home, args: &[&str], answer: &str) -> Ran {
    let (mut terminal, inside) = pty_process::blocking::open().unwrap();
    let mut child = pty_process::blocking::Command::new("timeout")
        .args(["--foreground", "60", env!("CARGO_BIN_EXE_levada")])
        .args(args)
        .env("LEVADA_HOME", home.path())
        .env("NO_COLOR", "1")
        .spawn(inside)
        .unwrap();
    let (mut shown, mut buffer) = (Vec::new(), [0; 1024]);
    let mut answered = false;
    // A terminal that nobody holds any more fails to read.
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
fn at_a_terminal_the_key_is_shown_and_asked_about() {
    let (home, guest) = (Home::new(), Home::new());
    let name = own_name("asked");
    let _node = announced(&home, &name, &guest);
    for no in ["n\n", "\n", "Yes, please\n"] {
        let ran = heard(|| at_a_terminal(&guest, &["query", &name], no));
        assert!(ran.stderr.contains(&home.identity()), "{}", ran.stderr);
        ran.denied("was not accepted");
        assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
    }
    let clock = format!("{name}/clock");
    let ran = heard(|| at_a_terminal(&guest, &["run", &clock], "y\n"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(guest.json("peers ls")["peers"][0]["identity"], home.identity());
    // It is asked once.
    let ran = at_a_terminal(&guest, &["run", &clock], "");
    assert!(ran.code == 0 && !ran.stderr.contains("[y/N]"), "{}", ran.stderr);
}

#[test]
fn a_pinned_node_that_is_not_announced_is_shown_if_it_answers() {
    let (home, guest) = (Home::new(), Home::new());
    let (name, loopback) = (own_name("quiet"), own_loopback());
    let up = format!("up --name {name} --listen {loopback}:0 --http 127.0.0.1:0 --no-announce");
    let node = home.up_with(&up);
    node.welcome(&guest, "quiet");
    let entry = seen_when(&guest, &home.identity(), has_answered);
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &false.into()));
    assert_eq!(services(&entry), ["clock", "echo"]);
    let address = node.address();
    node.kill();
    let away = |entry: &Value| (entry["services"].clone(), entry["away"].clone());
    assert_eq!(away(&guest.sees(&home.identity())), (Value::Null, true.into()));
    // Somebody who takes the connection there and says nothing is not waited for.
    let _hanging = std::net::TcpListener::bind(address).unwrap();
    assert_eq!(away(&guest.sees(&home.identity())), (Value::Null, true.into()));
}
