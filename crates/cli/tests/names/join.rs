//! The names that `invite` and `join` give.

use crate::support::{Home, own_loopback, own_name};

#[test]
fn a_pinned_person_can_be_invited_again_and_keeps_the_name() {
    let [home, bob, carol] = [Home::new(), Home::new(), Home::new()];
    let node = home.up("--name well");
    let code = node.invite("--name bob --service clock");
    bob.args(["join", &code, "--as", "well"]).ok();
    bob.run("run well/echo").denied("may not request");

    let invited = home.run("invite --name bob --service echo");
    let note = format!("bob is {} here already", bob.identity());
    assert!(invited.stderr.contains(&note), "{}", invited.stderr);
    let line = invited.ok();
    bob.args(["join", &line]).ok();
    bob.run("run well/echo").ok();
    bob.run("run well/clock").ok();

    // Another identity gets the rights of the invitation, as of any other, and not the name.
    let code = node.invite("--name bob");
    carol.args(["join", &code, "--as", "well"]).ok();
    carol.run("run well/clock").ok();
    let peers = home.json("peers ls")["peers"].take();
    let named = peers.as_array().unwrap().iter().filter(|peer| peer["name"] == "bob");
    let identities: Vec<_> = named.map(|peer| peer["identity"].clone()).collect();
    assert_eq!(identities, [bob.identity()]);
    assert!(!node.log().contains("pinned under another name already"), "{}", node.log());
}

#[test]
fn a_note_has_both_names_of_a_node_that_is_pinned_under_another_name() {
    let [first, second, guest] = [Home::new(), Home::new(), Home::new()];
    let name = own_name("well");
    let [one, other] = [&first, &second].map(|home| home.up(&format!("--name {name}")));
    let joined = guest.args(["join", &one.invite("")]);
    assert!(!joined.stderr.contains("calls itself"), "{}", joined.stderr);
    assert_eq!(joined.ok(), name);

    let joined = guest.args(["join", &other.invite("")]);
    let given = joined.stdout.trim_end().to_owned();
    assert!(given.starts_with("node-"), "{given}");
    let note = format!("the node calls itself {name}, but {given} is its name here");
    assert!(joined.stderr.contains(&note), "{}", joined.stderr);
    assert!(joined.stderr.contains(&format!("levada peers rename {given} ")), "{}", joined.stderr);

    let joined = guest.args(["join", &other.invite(""), "--as", "spring"]);
    let note = format!("it was known here as {given} until now");
    assert!(joined.stderr.contains(&note), "{}", joined.stderr);
    assert_eq!(joined.ok(), "spring");
}

#[test]
fn up_and_invite_name_the_addresses_and_their_reach() {
    let home = Home::new();
    let node = home.up("--name well --advertise box.example:5382");
    let log = node.log();
    assert!(log.contains("address   box.example:5382\naddress   127.0.0.1:"), "{log}");
    assert!(log.contains("  (this machine)\n"), "{log}");
    let invited = home.run("invite");
    assert!(invited.stderr.contains("within 10m, at box.example:5382. "), "{}", invited.stderr);
    let addresses = home.json("invite --address spring.example:1")["addresses"].take();
    let addresses: Vec<_> = addresses.as_array().unwrap().iter().collect();
    assert_eq!(addresses[..2], ["spring.example:1", "box.example:5382"]);
    assert_eq!(*addresses[2], node.address());
}

#[test]
fn an_advertised_address_of_a_private_network_is_not_warned_of() {
    let home = Home::new();
    let log = home.up("--name well --advertise 192.168.7.1:5382").log();
    assert!(log.contains("192.168.7.1:5382  (private network)\n"), "{log}");
    assert!(!log.contains("outside of this network"), "{log}");
}

#[test]
fn join_names_what_does_not_answer_and_what_to_do() {
    let [home, guest] = [Home::new(), Home::new()];
    let loopback = own_loopback();
    let up = format!("up --name well --listen {loopback}:0 --http 127.0.0.1:0");
    let node = home.up_with(&up);
    let address = node.address();
    let code = node.invite("");
    node.kill();
    let joined = guest.args(["join", &code]);
    let (_, port) = address.rsplit_once(':').unwrap();
    for expected in [format!("no node answers at {address} (refused)"), format!("TCP port {port} ")]
    {
        assert!(joined.stderr.contains(&expected), "{expected}: {}", joined.stderr);
    }
    joined.fails(122, "levada invite --address HOST:PORT");
}
