//! Shares of a running node: `share` and `swarm`.

use std::fs;

use levada_capability::Ticket;
use levada_client::ClientError;

use crate::support::{Home, Ran};
use crate::tickets::exchange;

#[track_caller]
fn refusal(home: &Home, ticket: &Ticket) -> String {
    match exchange(home, ticket) {
        Err(ClientError::Denied(text)) => text,
        other => panic!("not denied: {other:?}"),
    }
}

/// A home with a file and a folder to share.
fn with_files() -> (Home, [String; 2]) {
    let home = Home::new();
    let [film, photos] = ["film.mkv", "photos"].map(|name| home.path().join(name));
    fs::write(&film, vec![7; 100_000]).unwrap();
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("one"), b"1").unwrap();
    (home, [film, photos].map(|path| path.to_str().unwrap().to_owned()))
}

#[test]
fn a_share_survives_a_restart_and_ends_with_stop() {
    let (home, [film, _]) = with_files();
    let [alice, bob] = [Home::new(), Home::new()];
    let node = home.up("--name well");
    let text = home.args(["share", &film, "--peers", "1"]).ok();
    let ticket = Ticket::from_text(&text).unwrap();
    assert_eq!((ticket.terms().length, ticket.terms().peers), (100_000, 1));
    exchange(&alice, &ticket).unwrap();
    drop(node);
    let _node = home.up("--name well");
    let share = home.json("swarm ls")["shares"][0].take();
    assert_eq!((&share["name"], &share["length"]), (&"film.mkv".into(), &100_000.into()));
    assert_eq!((&share["peers"], &share["settings"]["chunk"]), (&1.into(), &65_536.into()));
    let number = share["share"].to_string();
    // The same share gets a further ticket.
    let again = home.args(["share", &film, "--to", &bob.identity()]).ok();
    let again = Ticket::from_text(&again).unwrap();
    // The node has another port now.
    let secret = ticket.secret().clone();
    let addresses = again.addresses().to_vec();
    let ticket = Ticket::new(ticket.node(), secret, *ticket.terms(), addresses).unwrap();
    exchange(&alice, &ticket).unwrap();
    let status = home.json(&format!("swarm status {number}"));
    assert_eq!(status["tickets"].as_array().unwrap().len(), 2);
    assert_eq!(home.json("swarm ls")["shares"].as_array().unwrap().len(), 1);
    assert!(home.run(&format!("swarm status {number}")).ok().contains("film.mkv"));
    home.run(&format!("swarm stop {number}")).ok();
    assert_eq!(home.json("swarm ls")["shares"], serde_json::json!([]));
    assert!(refusal(&alice, &ticket).contains("revoked"));
    assert!(refusal(&bob, &again).contains("revoked"));
    home.run(&format!("swarm stop {number}")).fails(1, "no share");
    home.run(&format!("swarm status {number}")).fails(1, "no share");
}

#[test]
fn a_revoked_ticket_ends_and_others_stay() {
    let (home, [film, photos]) = with_files();
    let alice = Home::new();
    let _node = home.up("--name well");
    let text = home.args(["share", &film, &photos]).ok();
    let other = home.args(["share", &film]).ok();
    let [both, other] = [&text, &other].map(|text| Ticket::from_text(text).unwrap());
    exchange(&alice, &both).unwrap();
    home.args(["swarm", "revoke", &text]).ok();
    assert!(refusal(&alice, &both).contains("revoked"));
    exchange(&alice, &other).unwrap();
    home.args(["swarm", "revoke", "00000000"]).fails(1, "ticket");
    home.args(["swarm", "revoke", "zz"]).fails(2, "not a ticket");
    home.args(["swarm", "revoke", "lvtkt1abc"]).fails(2, "not a ticket");
}

/// A share is content, name and options: each keeps its own.
#[test]
fn the_same_bytes_under_another_name_are_another_share() {
    let (home, [film, _]) = with_files();
    let copy = home.path().join("copy.mkv");
    fs::copy(&film, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    let node = home.up("--name well");
    let tickets = [
        home.args(["share", &film]).ok(),
        home.args(["share", copy]).ok(),
        home.args(["share", copy, "--mode", "mediated"]).ok(),
    ];
    let shares = home.json("swarm ls")["shares"].take();
    let names: Vec<_> = shares.as_array().unwrap().iter().map(|share| &share["name"]).collect();
    assert_eq!(names, ["film.mkv", "copy.mkv", "copy.mkv"]);
    let get = |ticket: &str| {
        let alice = Home::new();
        let folder = alice.path().join("to");
        fs::create_dir(&folder).unwrap();
        let ran = alice.args(["get", ticket, "-o", folder.to_str().unwrap()]);
        let left = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        (ran, left.collect::<Vec<_>>())
    };
    for (ticket, name) in tickets.iter().zip(["film.mkv", "copy.mkv", "copy.mkv"]) {
        assert_eq!(get(ticket).1, [name]);
    }
    // One ends, and the others stay, also after a restart, with the stored hashes of the content.
    home.args(["swarm", "stop", "1"]).ok();
    get(&tickets[0]).0.denied("revoked");
    assert_eq!(fs::read_dir(home.path().join("shares")).unwrap().count(), 1);
    assert_eq!(get(&tickets[1]).1, ["copy.mkv"]);
    home.args(["swarm", "stop", "2"]).ok();
    home.args(["swarm", "stop", "3"]).ok();
    assert_eq!(fs::read_dir(home.path().join("shares")).unwrap().count(), 0);
    drop(node);
}

/// Programs read some hidden files without being asked to, such as `.bash_profile`.
#[test]
fn a_hidden_name_has_to_be_named_by_the_one_who_gets_it() {
    let home = Home::new();
    let [profile, keys] = [".bash_profile", ".ssh"].map(|name| home.path().join(name));
    fs::write(&profile, "echo hello").unwrap();
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("authorized_keys"), "ssh-ed25519 AAAA").unwrap();
    let alice = Home::new();
    let _node = home.up("--name well");
    for path in [&profile, &keys] {
        let ticket = home.args(["share", path.to_str().unwrap()]).ok();
        let folder = alice.path().to_str().unwrap();
        alice.args(["get", &ticket, "-o", folder]).fails(2, "-o PATH");
        let inside = alice.command(["get", &ticket]).current_dir(folder).output().unwrap();
        Ran::from(inside).fails(2, "-o PATH");
        assert!(!alice.path().join(path.file_name().unwrap()).exists());
        let named = alice.path().join("named");
        alice.args(["get", &ticket, "-o", named.to_str().unwrap()]).ok();
        assert!(named.exists());
        let _ = fs::remove_file(&named).or_else(|_| fs::remove_dir_all(&named));
    }
}

#[test]
fn what_cannot_be_shared_is_named() {
    let (home, [film, _]) = with_files();
    let _node = home.up("--name well");
    home.args(["share", "/nowhere/film"]).fails(120, "/nowhere/film");
    home.args(["share", "/dev/null"]).fails(120, "neither a file nor a folder");
    home.args(["share", &film, "--chunk", "64K"]).fails(2, "64000 bytes are not a power of two");
    home.args(["share", &film, "--peers", "0"]).fails(2, "--peers");
    home.args(["share", &film, "--to", "unknown"]).fails(2, "unknown");
    assert_eq!(home.json("swarm ls")["shares"], serde_json::json!([]));
}
