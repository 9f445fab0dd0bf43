//! Names: nodes are found by multicast on loopback, asked about once, pinned, renamed, forgotten, and not
//! mistaken for others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};

use serde_json::Value;
use support::{Home, Node, Ran, eventually, own_loopback, own_name};

/// Waits until `home` sees this key, and returns how.
fn seen(home: &Home, identity: &str) -> Value {
    let mut entry = Value::Null;
    eventually("it is announced", || {
        entry = home.sees(identity);
        !entry.is_null()
    });
    entry
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
    let entry = guest.sees(&identity);
    assert_eq!((&entry["name"], &entry["state"]), (&one.clone().into(), &"new".into()));
    assert_eq!(entry["addresses"], serde_json::json!([address]));
    assert_eq!(entry["services"], Value::Null, "a new node is not asked");

    // Nobody is at a terminal: the name is refused, with the key to compare and the way out.
    let refused = guest.run(&format!("query {one}"));
    assert!(refused.stderr.contains("--accept-new") && refused.stderr.contains(&address));
    refused.denied(&identity);
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));

    guest.run(&format!("run {one}/clock --accept-new")).ok();
    guest.run(&format!("run {one}/clock")).ok();
    let entry = guest.sees(&identity);
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &false.into()));
    assert_eq!(services(&entry), ["clock", "echo"]);
    assert_eq!(guest.sees(&second.identity())["state"], "new");
    let peers = guest.json("peers ls")["peers"].take();
    assert_eq!((&peers[0]["name"], &peers[0]["identity"]), (&one.clone().into(), &identity.into()));
    assert_eq!(peers[0]["addresses"], serde_json::json!([address]));

    // A nickname is ours to choose; what the node calls itself does not replace it.
    guest.run(&format!("peers rename {one} cellar")).ok();
    guest.run("run cellar/clock").ok();
    guest.run(&format!("query {one} --accept-new")).denied("known here as `cellar`");
    guest.run(&format!("peers rename {one} x")).fails(1, "peers ls");
    guest.run(&format!("run {two}/clock --accept-new")).ok();
    guest.run(&format!("peers rename {two} cellar")).denied("stands for");
    guest.args(["peers", "rename", "cellar", &first.identity()]).fails(2, "identity");

    guest.run("peers forget cellar").ok();
    guest.run("peers forget cellar").fails(1, "peers ls");
    assert_eq!(guest.sees(&first.identity())["state"], "new");
    guest.run(&format!("query {one}")).denied("--accept-new");
    drop(other);
}

#[test]
fn a_table_for_people_and_a_type() {
    let (home, guest) = (Home::new(), Home::new());
    let name = own_name("table");
    let _node = announced(&home, &name, &guest);
    guest.run(&format!("query {name} --accept-new")).ok();
    let ran = guest.run("ls");
    let row = ran.stdout.lines().find(|line| line.starts_with(&name)).expect(&ran.stdout);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[1], cells[2]), ("pinned", &home.identity()[..10]));
    assert!(row.ends_with("clock, echo"), "{row}");
    assert!(ran.stdout.starts_with("name"));
    let listed = guest.json("ls --type echo");
    let nodes = listed["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == name).unwrap();
    assert_eq!(services(node), ["echo"]);
    assert_eq!(guest.json("ls --type nothing")["nodes"], serde_json::json!([]));
}

#[test]
fn a_name_that_two_keys_claim_stands_for_neither() {
    let (first, second, guest) = (Home::new(), Home::new(), Home::new());
    let name = own_name("twins");
    let (node, _other) = (announced(&first, &name, &guest), announced(&second, &name, &guest));
    for home in [&first, &second] {
        assert_eq!(guest.sees(&home.identity())["state"], "conflicting");
        let refused = guest.run(&format!("query {name} --accept-new"));
        refused.denied(&home.identity());
    }
    assert!(guest.run("ls").stderr.contains("conflict: "));
    assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
    // The way out that the error names.
    guest.args(["query", &node.at()]).ok();
    // What an invitation pinned is pinned, whoever else claims the name.
    node.welcome(&guest, &name);
    assert_eq!(guest.sees(&first.identity())["state"], "pinned");
    assert_eq!(guest.sees(&second.identity())["state"], "conflicting");
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
    guest.run(&format!("query {name} --accept-new")).ok();
    node.kill();
    let _thief = thief.up_with(&up);
    seen(&guest, &thief.identity());
    let refused = guest.run(&format!("query {name} --accept-new"));
    assert!(refused.stderr.contains("nothing was sent"), "{}", refused.stderr);
    refused.denied(&thief.identity());
    let entry = guest.sees(&home.identity());
    assert_eq!((&entry["state"], &entry["away"]), (&"pinned".into(), &true.into()));
    assert_eq!(guest.sees(&thief.identity())["state"], "conflicting");
    let ran = guest.run("ls");
    assert!(ran.stderr.contains("nothing was sent to"), "{}", ran.stderr);
    ran.ok();
}

#[test]
fn a_node_that_has_moved_is_found_by_its_key() {
    let (home, guest, stranger) = (Home::new(), Home::new(), Home::new());
    let name = own_name("moved");
    let node = announced(&home, &name, &guest);
    let before = node.address();
    guest.run(&format!("query {name} --accept-new")).ok();
    let capability = guest.run(&format!("request {name}/clock --uses 2")).ok();
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    // What said goodbye is gone at once.
    assert_eq!(guest.sees(&home.identity())["away"], true);
    let elsewhere = own_loopback();
    let up = format!("up --name {name} --listen {elsewhere}:0 --http 127.0.0.1:0");
    let node = home.up_with(&up);
    let after = node.address();
    assert_ne!(before, after);
    seen(&stranger, &home.identity());
    // By capability, by name, and by the key alone.
    guest.args(["connect", &capability]).ok();
    let addresses = || guest.json("peers ls")["peers"][0]["addresses"].take();
    assert_eq!(addresses(), serde_json::json!([after, before]));
    guest.run(&format!("query {name}")).ok();
    stranger.args(["query", &home.identity()]).ok();
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
        let ran = at_a_terminal(&guest, &["query", &name], no);
        assert!(ran.stderr.contains(&home.identity()), "{}", ran.stderr);
        ran.denied("was not accepted");
        assert_eq!(guest.json("peers ls")["peers"], serde_json::json!([]));
    }
    let ran = at_a_terminal(&guest, &["run", &format!("{name}/clock")], "y\n");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(guest.json("peers ls")["peers"][0]["identity"], home.identity());
    // It is asked once.
    let ran = at_a_terminal(&guest, &["run", &format!("{name}/clock")], "");
    assert!(ran.code == 0 && !ran.stderr.contains("[y/N]"), "{}", ran.stderr);
}

#[test]
fn a_pinned_node_that_is_not_announced_is_shown_if_it_answers() {
    let (home, guest) = (Home::new(), Home::new());
    let node = home.up(&format!("--name {} --no-announce", own_name("quiet")));
    node.welcome(&guest, "quiet");
    let entry = guest.sees(&home.identity());
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
