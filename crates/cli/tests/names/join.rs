//! The names that `invite` and `join` give.

use crate::support::{Home, own_name};

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
