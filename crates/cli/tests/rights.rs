//! Three identities, real processes: who may do what with a capability, and who may not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{Home, eventually};

/// A node that offers everything for trying, one who is let in, and a third.
struct Scene {
    node: Home,
    alice: Home,
    bob: Home,
}

impl Scene {
    fn new() -> Self {
        Self { node: Home::new(), alice: Home::new(), bob: Home::new() }
    }
}

#[test]
fn join_run_request_grant_connect_revoke() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    assert_eq!(scene.alice.run("run well/exec -- uname -s").ok(), "Linux");

    // The third identity knows nobody and is known to nobody.
    let at = node.at();
    scene.bob.args(["run", &format!("{at}/clock")]).denied("may not request");

    let capability = scene.alice.run("request well/exec --uses 3 -- cat").ok();
    let bob = scene.bob.identity();
    scene.bob.args(["connect", &capability]).denied("bound to another identity");
    let granted =
        scene.alice.args(["grant", &capability, "--to", &bob, "--rights", "x", "--uses", "2"]).ok();
    let echoed = scene.bob.with_input(&format!("connect {granted}"), b"water");
    assert_eq!(echoed.ok(), "water");

    // Beyond his rights: terminating, passing on, starting once too often.
    scene.bob.args(["terminate", &granted]).denied("lacks the right to terminate");
    let alice = scene.alice.identity();
    scene.bob.args(["grant", &granted, "--to", &alice, "--rights", "x"]).denied("");
    scene.bob.with_input(&format!("connect {granted}"), b"more").ok();
    scene.bob.args(["connect", &granted]).denied("used up");

    // Whose link it is, he may revoke; what is derived from it ends too.
    scene.alice.args(["revoke", &capability]).ok();
    scene.bob.args(["connect", &granted]).denied("revoked");
    scene.alice.args(["connect", &capability]).denied("revoked");
}

#[test]
fn each_right_alone_and_each_pair() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let (alice, bob) = (scene.alice.identity(), scene.bob.identity());
    for rights in ["x", "t", "d", "xt", "xd", "td", "xtd"] {
        let root = scene.alice.run("request well/clock --uses 5").ok();
        let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", rights]).ok();
        let may = |right: char| rights.contains(right);

        let connect = scene.bob.args(["connect", &granted]);
        if may('x') {
            drop(connect.ok())
        } else {
            connect.denied("execute")
        }
        let grant = scene.bob.args(["grant", &granted, "--to", &alice, "--rights", &rights[..1]]);
        if may('d') {
            drop(grant.ok())
        } else {
            grant.denied("")
        }
        // Last, because it ends the session.
        let terminate = scene.bob.args(["terminate", &granted]);
        if may('t') {
            terminate.ok();
            scene.alice.args(["connect", &root]).denied("terminated");
        } else {
            terminate.denied("terminate");
        }
    }
}

#[test]
fn a_granted_right_never_grows() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let (alice, bob) = (scene.alice.identity(), scene.bob.identity());
    let root = scene.alice.run("request well/exec --uses 2 --expires 10m").ok();
    let narrow = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "xd"]).ok();
    let back = |extra: &[&str]| {
        let mut args = vec!["grant", &narrow, "--to", &alice, "--rights"];
        args.extend(extra);
        scene.bob.args(args)
    };
    back(&["xt"]).denied("widened");
    back(&["x", "--uses", "3"]).denied("widened");
    back(&["x", "--expires", "20m"]).denied("widened");
    scene
        .alice
        .args(["grant", &narrow, "--to", &alice, "--rights", "x"])
        .denied("bound to another identity");
    // A link may fix what is not fixed yet, and nobody can change that.
    let fixed = back(&["x", "--", "uname", "-s"]).ok();
    assert_eq!(scene.alice.args(["connect", &fixed]).ok(), "Linux");
}

#[test]
fn the_invoker_cannot_change_parameters() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    let root = scene.alice.run("request well/exec -- uname -s").ok();
    let args = ["grant", &root, "--to", &bob, "--rights", "xd", "--", "uname", "-a"];
    scene.alice.args(args).denied("already set");
    let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "xd"]).ok();
    let args = ["grant", &granted, "--to", &bob, "--rights", "x", "--", "date"];
    scene.bob.args(args).denied("already set");
    assert_eq!(scene.bob.args(["connect", &granted]).ok(), "Linux");
    // What the service does not allow is refused at the request.
    scene.alice.run("request well/exec -- cat /etc/passwd").denied("takes at most 0");
    scene.alice.run("request well/exec -- date -s tomorrow").denied("not allowed");
    scene.alice.run("request well/exec -- sh -c id").denied("not allowed");
}

#[test]
fn revoking_ends_what_runs_within_a_second() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    for by_node in [false, true] {
        let root = scene.alice.run("request well/exec -- cat").ok();
        let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "x"]).ok();
        let mut command = scene.bob.command(["connect", &granted]);
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        eventually("the session runs", || scene.node.json("status")["running_sessions"] == 1);
        if by_node {
            // The one that runs: two may have been requested within the same second.
            let sessions = scene.node.json("sessions")["sessions"].as_array().unwrap().clone();
            let running = sessions.iter().find(|session| session["running"] == 1).unwrap();
            let session = running["session"].as_str().unwrap();
            scene.node.args(["revoke", session]).ok();
        } else {
            scene.alice.args(["revoke", &root]).ok();
        }
        eventually("the session has ended", || scene.node.json("status")["running_sessions"] == 0);
        support::Ran::from(child.wait_with_output().unwrap()).denied("revoked");
        scene.bob.args(["connect", &granted]).denied("revoked");
    }
}

#[test]
fn who_may_revoke() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    let root = scene.alice.run("request well/clock --uses 9").ok();
    let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "x"]).ok();
    // Not one's own, and none behind one's own.
    scene.bob.args(["revoke", &root]).denied("");
    scene.alice.args(["connect", &root]).ok();
    // The holder of a link revokes it; the one before it goes on.
    scene.bob.args(["revoke", &granted]).ok();
    scene.bob.args(["connect", &granted]).denied("revoked");
    scene.alice.args(["connect", &root]).ok();
    // The node may revoke anything.
    scene.node.args(["revoke", &root]).ok();
    scene.alice.args(["connect", &root]).denied("revoked");
}

#[test]
fn expiry_ends_the_right_to_start_and_not_a_running_session() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let capability = scene.alice.run("request well/exec --uses 2 --expires 8s -- cat").ok();
    let mut command = scene.alice.command(["connect", &capability]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    eventually("the session runs", || scene.node.json("status")["running_sessions"] == 1);
    eventually("the right has expired", || {
        let again = scene.alice.args(["connect", &capability]);
        again.code == 121 && again.stderr.contains("expired")
    });
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"still here").unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait_with_output().unwrap().stdout, b"still here");
}

#[test]
fn a_capability_that_does_not_hold_is_denied_and_says_why() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let capability = scene.alice.run("request well/clock").ok();
    let mut garbled = capability.clone().into_bytes();
    garbled[40] = if garbled[40] == b'a' { b'b' } else { b'a' };
    let garbled = String::from_utf8(garbled).unwrap();
    scene.alice.args(["connect", &garbled]).denied("checksum");
    scene.alice.args(["connect", &capability[..capability.len() - 9]]).denied("");
    scene.alice.args(["inspect", &garbled]).denied("checksum");
    // Of another node: its identity answers to nobody here.
    let other_home = Home::new();
    let other = other_home.up("--name other");
    let own = other_home.run("request other/clock").ok();
    drop(other);
    assert_eq!(other_home.args(["connect", &own]).code, 122);
    // By file and by standard input.
    let file = scene.alice.path().join("capability");
    std::fs::write(&file, format!("{capability}\n")).unwrap();
    scene.alice.args(["inspect", &format!("@{}", file.display())]).ok();
    scene.alice.with_input("connect -", capability.as_bytes()).ok();
    scene.alice.args(["connect", &capability]).denied("used up");
    // Inspecting shows what it permits and never the secret.
    let shown = scene.alice.args(["inspect", "--json", &capability]).ok();
    let tail = &capability[capability.len() - 40..];
    assert!(!shown.contains(tail) && shown.contains("clock"), "{shown}");
}

#[test]
fn a_wrong_key_is_refused_before_anything_of_ours_is_sent() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    let stranger = Home::new().identity();
    let at = format!("{stranger}@{}/clock", node.address());
    scene.alice.args(["run", &at]).denied("nothing was sent");
    let (_, metrics) = node.http("/metrics");
    assert!(
        metrics.contains("levada_operations_total") || !metrics.contains("operation=\""),
        "{metrics}"
    );
    assert!(!node.log().contains(&scene.alice.identity()), "the node has seen who asked");
}

#[test]
fn what_an_invitation_gave_can_be_taken_back() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let held = scene.alice.run("request well/clock --uses 2").ok();
    let alice = scene.alice.identity();
    scene.node.args(["revoke", &alice]).ok();
    scene.alice.run("request well/clock").denied("may not request");
    // What it holds was granted and stays so until it is revoked itself.
    scene.alice.args(["connect", &held]).ok();
    assert_eq!(scene.node.args(["revoke", &alice]).code, 1);
}
