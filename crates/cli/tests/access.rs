//! `levada access` and `levada invite ls`, `cancel`: an owner sees and changes who may do what.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Home, eventually};

/// The rows of `levada access` for an identity.
fn rows(home: &Home, identity: &str) -> Vec<Value> {
    home.json(&format!("access {identity}"))["access"].as_array().unwrap().clone()
}

#[test]
fn the_owner_sees_each_right_and_where_it_is_from() {
    let home = Home::new();
    let [alice, bob, carol] = [Home::new(), Home::new(), Home::new()];
    let of_bob = bob.identity();
    let config = home.path().join("config.toml");
    let text = format!("allow = [\n  {{ identity = '{of_bob}', services = ['clock'] }},\n]\n");
    std::fs::write(&config, text).unwrap();
    let option = format!("--demo --name well --allow {}", carol.identity());
    let node = home.up(&option);
    node.invite("--name alice --service exec");
    let open = home.json("invite ls");
    assert_eq!(open["invitations"][0]["name"], "alice");
    let code = node.invite("--name alice --service echo");
    alice.args(["join", &code]).ok();
    home.args(["access", "allow", "alice", "--service", "exec", "--uses", "4"]).ok();

    let shown = rows(&home, "alice");
    let of = |shown: &[Value], from: &str| {
        shown.iter().find(|row| row["from"] == from).cloned().unwrap_or_default()
    };
    assert_eq!(of(&shown, "invitation")["service"], "echo");
    assert_eq!(
        (&of(&shown, "owner")["service"], &of(&shown, "owner")["uses"]),
        (&"exec".into(), &4.into())
    );
    let place = format!("{}:2", config.display());
    assert_eq!(rows(&home, &of_bob)[0]["detail"], place.as_str());
    assert_eq!(rows(&home, &carol.identity())[0]["from"], "command line");

    // A session that was requested and not started is a right, too; a use is counted.
    let capability = alice.run("request well/exec --uses 3 -- cat").ok();
    alice.with_input(&format!("connect {capability}"), b"water").ok();
    let shown = rows(&home, "alice");
    assert_eq!(of(&shown, "owner")["uses"], 1);
    assert!(of(&shown, "owner")["last_used"].is_number());
    assert_eq!(of(&shown, "capability")["uses"], 2);

    let all = home.run("access").ok();
    for text in ["alice", "exec", "config.toml:2", "command line", "every service"] {
        assert!(all.contains(text), "{text}: {all}");
    }
    assert!(!all.contains("lvinv1"), "{all}");
}

#[test]
fn a_right_of_the_owner_ends_with_its_uses() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    home.args(["access", "remove", "alice"]).fails(2, "alice");
    let identity = alice.identity();
    home.args(["access", "remove", &identity]).ok();
    alice.run("run well/clock").denied("may not request");
    home.args(["access", "allow", &identity, "--service", "clock", "--uses", "1"]).ok();
    alice.run("run well/clock").ok();
    alice.run("run well/clock").denied("may not request");
    home.args(["access", "allow", &identity, "--service", "tap"]).fails(1, "no service `tap`");
    home.args(["access", "allow", &identity, "--expires", "7d"]).ok();
    alice.run("run well/clock").ok();
    // A session of a right with an end does not last longer than the right.
    let capability = alice.run("request well/clock --expires 90d").ok();
    let until = alice.json(&format!("inspect {capability}"))["expires"].as_u64().unwrap();
    assert_eq!(rows(&home, &identity)[0]["until"], until);
}

#[test]
fn removing_all_access_ends_and_revokes_everything_that_is_known() {
    let home = Home::new();
    let [alice, bob] = [Home::new(), Home::new()];
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let of_alice = alice.identity();
    let passed = alice.run("request well/exec --uses 9 -- cat").ok();
    let granted = alice.args(["grant", &passed, "--to", &bob.identity(), "--rights", "x"]).ok();
    bob.with_input(&format!("connect {granted}"), b"water").ok();
    let mut running = alice
        .command(["run", "well/exec", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_running = || rows(&home, &of_alice).iter().any(|row| row["running"] == 1);
    eventually("the session runs", is_running);

    let removed = home.json(&format!("access remove {of_alice} --all"));
    assert_eq!(removed["rights"], 1);
    assert_eq!(removed["ended"], 1);
    assert_eq!(running.wait().unwrap().code(), Some(121));
    let mut error = String::new();
    BufReader::new(running.stderr.take().unwrap()).read_line(&mut error).unwrap();
    assert!(error.contains("revoked"), "{error}");
    alice.run("run well/exec -- uname").denied("may not request");
    alice.args(["connect", &passed]).denied("revoked");
    bob.args(["connect", &granted]).denied("revoked");
    assert!(rows(&home, &of_alice).is_empty());
    home.args(["access", "remove", &of_alice, "--all"]).fails(1, "0 rights removed");
}

#[test]
fn an_invitation_that_was_cancelled_opens_nothing() {
    let home = Home::new();
    let [alice, bob] = [Home::new(), Home::new()];
    let node = home.up("--demo --name well");
    let cancelled = node.invite("--service clock --name alice");
    let id = home.json("invite ls")["invitations"][0]["id"].as_str().unwrap().to_owned();
    let kept = node.invite("--service echo");
    home.args(["invite", "cancel", &id[..8]]).ok();
    home.args(["invite", "cancel", &id[..8]]).fails(1, "was used, cancelled or expired");
    alice.args(["join", &cancelled]).denied("used");
    bob.args(["join", &kept]).ok();
    assert!(home.run("invite ls").ok().is_empty());
}
