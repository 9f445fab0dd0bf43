//! What an identity can still use after `levada revoke NAME`.

use crate::support::{Home, Ran, eventually};

/// The ids in the table that `revoke` prints for an identity.
fn ids(ran: &Ran) -> Vec<String> {
    let rows = ran.stderr.lines().skip_while(|line| !line.starts_with("id ")).skip(1);
    let rows = rows.take_while(|line| !line.starts_with('`'));
    rows.map(|row| row.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn revoking_an_identity_names_what_goes_on_and_how_to_end_it() {
    let [home, alice, bob, carol] = [Home::new(), Home::new(), Home::new(), Home::new()];
    let node = home.up("--demo --name well");
    for (guest, name) in [(&alice, "alice"), (&carol, "carol")] {
        let code = node.invite(&format!("--name {name}"));
        guest.args(["join", &code, "--as", "well"]).ok();
    }
    let running = |count: u64| {
        eventually("the sessions run", || home.json("status")["running_sessions"] == count);
    };
    // One that is used up, which the answer leaves out.
    alice.run("run well/clock").ok();
    // Alice's own, one that she has passed on to Bob, and one that Carol has passed on to her.
    let own = alice.spawn(&["run", "well/exec", "--", "cat"]);
    let passed = alice.run("request well/exec --uses 2 -- cat").ok();
    let of_bob = alice.args(["grant", &passed, "--to", &bob.identity(), "--rights", "x"]).ok();
    let by_bob = bob.spawn(&["connect", &of_bob]);
    let of_carol = carol.run("request well/exec --uses 2 -- cat").ok();
    let received =
        carol.args(["grant", &of_carol, "--to", &alice.identity(), "--rights", "x"]).ok();
    let by_alice = alice.spawn(&["connect", &received]);
    running(3);
    let revoked = home.run("revoke alice");
    assert!(revoked.stderr.contains("can request no further sessions"), "{}", revoked.stderr);
    assert!(revoked.stderr.contains("`levada revoke ID` ends one"), "{}", revoked.stderr);
    assert!(revoked.stderr.contains("block = [\"lv"), "{}", revoked.stderr);
    let found = ids(&revoked);
    assert_eq!((found.len(), revoked.code), (3, 0), "{}", revoked.stderr);
    running(3);

    // Each id ends one of them, and that of a received capability leaves the session to Carol.
    for (at, id) in found.iter().enumerate() {
        home.args(["revoke", id]).ok();
        running(2 - at as u64);
    }
    for mut child in [own, by_bob, by_alice] {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    alice.args(["connect", &received]).denied("revoked");
    carol.args(["connect", &of_carol]).ok();
    let again = home.run("revoke alice");
    assert!(again.stderr.contains("none of its sessions runs"), "{}", again.stderr);
    assert_eq!((ids(&again).len(), again.code), (0, 1));
    drop(node);
}

#[test]
fn revoking_an_identity_says_that_the_configuration_still_allows_it() {
    let [home, alice] = [Home::new(), Home::new()];
    let allow = format!("allow = ['{}']\n", alice.identity());
    std::fs::write(home.path().join("config.toml"), allow).unwrap();
    let node = home.up("--name well");
    let code = node.invite("--name alice");
    alice.args(["join", &code, "--as", "well"]).ok();
    let revoked = home.run("revoke alice");
    assert!(revoked.stderr.contains("`allow` in config.toml"), "{}", revoked.stderr);
    assert!(!revoked.stderr.contains("no further sessions"), "{}", revoked.stderr);
    alice.run("run well/clock").ok();
}
