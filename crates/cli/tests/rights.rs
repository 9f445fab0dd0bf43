//! Rights of capabilities, invitations and blocks: three identities, real processes.

mod remaining;

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;

use crate::support::{self, Home, eventually};
use levada_capability::{Capability, Invitation};
use levada_client::{Client, ClientError, Running, Target};
use levada_core::UnixTime;
use levada_home::known::Known;

/// The homes of a node, of a guest (Alice), and of a third identity (Bob).
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

    // Bob has joined no node.
    let at = node.at();
    scene.bob.args(["run", &format!("{at}/clock")]).denied("may not request");

    let capability = scene.alice.run("request well/exec --uses 3 -- cat").ok();
    let bob = scene.bob.identity();
    scene.bob.args(["connect", &capability]).denied("bound to another identity");
    let granted =
        scene.alice.args(["grant", &capability, "--to", &bob, "--rights", "x", "--uses", "2"]).ok();
    let echoed = scene.bob.with_input(&format!("connect {granted}"), b"water");
    assert_eq!(echoed.ok(), "water");

    // Bob lacks the rights to terminate and to distribute, and a third use.
    scene.bob.args(["terminate", &granted]).denied("lacks the right to terminate");
    let alice = scene.alice.identity();
    scene.bob.args(["grant", &granted, "--to", &alice, "--rights", "x"]).denied("distribute");
    scene.bob.with_input(&format!("connect {granted}"), b"more").ok();
    scene.bob.args(["connect", &granted]).denied("used up");

    // Alice revokes her link, and with it the links that are derived from it.
    scene.alice.args(["revoke", &capability]).ok();
    scene.bob.args(["connect", &granted]).denied("revoked");
    scene.alice.args(["connect", &capability]).denied("revoked");
}

#[test]
fn identities_are_written_and_shown_by_name() {
    let Scene { node: home, alice, bob } = Scene::new();
    let of_alice = alice.identity();
    let of_bob = bob.identity();
    home.args(["peers", "add", "bob", &of_bob]).ok();
    home.args(["peers", "add", "bob", &of_bob]).ok();
    home.args(["peers", "add", "bob", &of_alice]).denied("stands for");
    home.args(["peers", "add", "robert", &of_bob]).denied("levada peers rename bob robert");
    home.args(["peers", "add", "carol", "lvx"]).fails(2, "identity");
    let config = home.path().join("config.toml");
    std::fs::write(&config, "block = ['carol']\n").unwrap();
    home.run("up --listen 127.0.0.1:0")
        .fails(120, "config.toml:1: key `block[0]`: no identity is known");
    std::fs::write(&config, "allow = [{ identity = 'bob', services = ['clock'] }]\n").unwrap();
    let node = home.up("--demo --name well");
    bob.args(["run", &format!("{}/clock", node.at())]).ok();
    bob.args(["run", &format!("{}/echo", node.at())]).denied("may not request");

    // An invitation may name the guest.
    let code = node.invite("--name alice");
    alice.args(["join", &code, "--as", "well"]).ok();
    let peers = home.json("peers ls")["peers"].take();
    let named = |name: &str| peers.as_array().unwrap().iter().find(|peer| peer["name"] == name);
    assert_eq!(named("alice").unwrap()["identity"], of_alice);

    // A capability is bound to the key of the name.
    alice.args(["peers", "add", "bob", &of_bob]).ok();
    let capability = alice.run("request well/exec --for bob -- uname -s").ok();
    assert_eq!(bob.args(["connect", &capability]).ok(), "Linux");
    let own = alice.run("request well/clock --uses 9").ok();
    let granted = alice.args(["grant", &own, "--to", "bob", "--rights", "x"]).ok();
    bob.args(["connect", &granted]).ok();
    alice.run("request well/clock --for carol").fails(2, "levada peers add carol");
    alice.args(["grant", &own, "--to", "carol", "--rights", "x"]).fails(2, "carol");
    alice.run("up --allow carol").fails(2, "carol");
    alice.run("revoke carol").fails(2, "levada peers ls");

    // Tables show names and shortened keys; `--json` has the whole keys.
    let shown = |name: &str, identity: &str| format!("{name} ({})", &identity[..10]);
    let (sessions, log) = (home.run("sessions").ok(), home.run("sessions --log").ok());
    for text in [&sessions, &log] {
        assert!(text.contains(&shown("alice", &of_alice)), "{text}");
        assert!(text.contains(&shown("bob", &of_bob)), "{text}");
    }
    let sessions = home.json("sessions")["sessions"].take();
    let bound = sessions.as_array().unwrap().iter().find(|one| one["service"] == "exec").unwrap();
    assert_eq!((&bound["holder"], &bound["holder_name"]), (&of_bob.into(), &"bob".into()));
    assert_eq!(bound["requester_name"], "alice");
    let log = home.json("sessions --log")["log"].take();
    let joined = log.as_array().unwrap().iter().find(|one| one["operation"] == "join").unwrap();
    assert_eq!(
        (&joined["identity"], &joined["identity_name"]),
        (&of_alice.clone().into(), &"alice".into())
    );

    // `revoke` accepts the shortened ids of the tables.
    let link = |text: &str| alice.json(&format!("inspect {text}"))["links"][1]["id"].take();
    let link = link(&granted).as_str().unwrap()[..16].to_owned();
    home.args(["revoke", &link]).ok();
    bob.args(["connect", &granted]).denied("revoked");
    alice.args(["connect", &own]).ok();
    let session = alice.json(&format!("inspect {own}"))["session"].take();
    home.args(["revoke", &session.as_str().unwrap()[..12]]).ok();
    alice.args(["connect", &own]).denied("revoked");
    home.args(["revoke", "0000000000000000"]).fails(1, "no session");
    home.args(["revoke", &of_alice[..9]]).fails(2, "neither a capability, an identity");
    home.args(["revoke", &of_alice[..10]]).ok();
    alice.run("request well/clock").denied("may not request");
    home.run("revoke alice").fails(1, "not permitted by an invitation");

    // A reload of the configuration blocks a name.
    std::fs::write(&config, "block = ['bob']\n").unwrap();
    node.signal("HUP");
    eventually("the policy is reloaded", || node.log().contains("policy read again"));
    bob.args(["query", &node.at()]).denied("blocked");
    // It is there, and says no.
    bob.args(["peers", "add", "well", &node.at()]).ok();
    let listed = bob.json("ls")["nodes"].take();
    let well = listed.as_array().unwrap().iter().find(|one| one["name"] == "well").unwrap();
    assert_eq!((&well["away"], &well["denied"]), (&false.into(), &true.into()), "{well}");
    let shown = bob.run("ls").ok();
    assert!(
        shown.lines().any(|line| line.starts_with("well") && line.contains("denied")),
        "{shown}"
    );
}

#[test]
fn each_combination_of_rights_permits_its_operations_only() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let alice = scene.alice.identity();
    let bob = scene.bob.identity();
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
            grant.denied("distribute")
        }
        // Last, because `terminate` ends the session.
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
fn a_granted_capability_cannot_be_widened() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let alice = scene.alice.identity();
    let bob = scene.bob.identity();
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
    // A link may set parameters that are not set yet; later links cannot change them.
    let fixed = back(&["x", "--", "uname", "-s"]).ok();
    assert_eq!(scene.alice.args(["connect", &fixed]).ok(), "Linux");
}

#[test]
fn the_holder_cannot_change_parameters() {
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
    // Parameters that the service does not allow are refused at the request.
    scene.alice.run("request well/exec -- cat /etc/passwd").denied("takes at most 0");
    scene.alice.run("request well/exec -- date -s tomorrow").denied("not allowed");
    scene.alice.run("request well/exec -- sh -c id").denied("not allowed");
}

#[test]
fn revoking_ends_running_sessions() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    for by_node in [false, true] {
        let root = scene.alice.run("request well/exec -- cat").ok();
        let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "x"]).ok();
        let mut command = scene.bob.command(["connect", &granted]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        eventually("the session runs", || scene.node.json("status")["running_sessions"] == 1);
        if by_node {
            // The running one: both sessions may have been requested in the same second.
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
fn holders_revoke_their_links_and_the_node_revokes_any() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    let root = scene.alice.run("request well/clock --uses 9").ok();
    let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "x"]).ok();
    // A holder cannot revoke the link before its own.
    scene.bob.args(["revoke", &root]).denied("bound to another identity");
    scene.alice.args(["connect", &root]).ok();
    // The holder of a link revokes it; the link before it stays valid.
    scene.bob.args(["revoke", &granted]).ok();
    scene.bob.args(["connect", &granted]).denied("revoked");
    scene.alice.args(["connect", &root]).ok();
    // The node revokes any link.
    scene.node.args(["revoke", &root]).ok();
    scene.alice.args(["connect", &root]).denied("revoked");
}

#[test]
fn expiry_ends_the_right_to_start_and_not_a_running_session() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let start = |lifetime: u32| {
        let line = format!("request well/exec --uses 2 --expires {lifetime}s -- cat");
        let capability = scene.alice.run(&line).ok();
        let mut command = scene.alice.command(["connect", &capability]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut runs = false;
        eventually("the session runs or the capability has expired", || {
            runs = scene.node.json("status")["running_sessions"] == 1;
            runs || child.try_wait().unwrap().is_some()
        });
        runs.then_some((capability, child))
    };
    // On a loaded machine, a start may come after the expiry: then the lifetime is doubled.
    let lifetimes = std::iter::successors(Some(4), |lifetime| Some(2 * lifetime));
    let (capability, mut child) = lifetimes.take(4).find_map(start).unwrap();
    eventually("the capability has expired", || {
        let again = scene.alice.args(["connect", &capability]);
        again.code == 121 && again.stderr.contains("expired")
    });
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"still here").unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait_with_output().unwrap().stdout, b"still here");
}

#[test]
fn max_run_ends_a_session_and_can_be_narrowed() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let bob = scene.bob.identity();
    let root = scene.alice.run("request well/exec --uses 9 --max-run 1h -- cat").ok();
    let grant = |limit: &[&str]| {
        let mut args = vec!["grant", &root, "--to", &bob, "--rights", "x"];
        args.extend(limit);
        scene.alice.args(args)
    };
    grant(&["--max-run", "2h"]).denied("may run for longer");
    let inherited = grant(&[]).ok();
    assert!(scene.bob.args(["inspect", &inherited]).ok().contains("max run    1h"));
    let short = grant(&["--max-run", "1s"]).ok();
    let mut command = scene.bob.command(["connect", &short]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // `cat` runs as long as its input is open.
    let _input = child.stdin.take();
    support::Ran::from(child.wait_with_output().unwrap()).denied("its maximum run time");
    eventually("the session has ended", || scene.node.json("status")["running_sessions"] == 0);
    // The start counts as a use, and the capability stays valid.
    assert_eq!(scene.bob.with_input(&format!("connect {inherited}"), b"x").ok(), "x");
    let all = scene.node.json("sessions --log")["log"].to_string();
    assert!(all.contains("its running time was over"), "{all}");
}

/// Blocks an identity in the configuration, and reloads it.
fn block(home: &Home, node: &support::Node, identity: &str) {
    fs::write(home.path().join("config.toml"), format!("block = ['{identity}']\n")).unwrap();
    node.signal("HUP");
}

#[test]
fn blocking_a_requester_ends_the_sessions_of_its_holders() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let alice = scene.alice.identity();
    let bob = scene.bob.identity();
    let request = ["request", "well/exec", "--for", &bob, "--expires", "36500d"];
    let uses = ["--uses", "4294967295", "--", "cat"];
    let capability = scene.alice.args([&request[..], &uses].concat()).ok();
    let mut command = scene.bob.command(["connect", &capability]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _input = child.stdin.take();
    eventually("the session runs", || scene.node.json("status")["running_sessions"] == 1);
    block(&scene.node, &node, &alice);
    support::Ran::from(child.wait_with_output().unwrap()).denied("the node ended the session");
    scene.bob.args(["connect", &capability]).denied("requested by an identity that is blocked");
    scene.bob.args(["terminate", &capability]).denied("requested by");
    let address = node.address();
    scene.node.run("stop").ok();
    drop(node);
    let node = scene.node.up_with(&format!("up --demo --name well --listen {address}"));
    scene.bob.args(["connect", &capability]).denied("requested by an identity that is blocked");
    fs::write(scene.node.path().join("config.toml"), "").unwrap();
    node.signal("HUP");
    eventually("the identity is no longer blocked", || {
        scene.bob.with_input(&format!("connect {capability}"), b"x").code == 0
    });
}

/// The holder starts a session repeatedly while an identity in the middle of its chain is blocked.
#[test]
fn no_session_survives_a_block_that_races_with_its_start() {
    let scene = Scene::new();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    let alice = scene.alice.identity();
    let bob = scene.bob.identity();
    let root = scene.alice.run("request well/echo --uses 100000").ok();
    let granted = scene.alice.args(["grant", &root, "--to", &bob, "--rights", "x"]).ok();
    let granted = Capability::from_text(&granted).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rounds = if support::in_full() { 10 } else { 2 };
    for _ in 0..rounds {
        let client = Arc::new(client_of(&scene.bob));
        let starters: Vec<_> = (0..4)
            .map(|_| runtime.spawn(start_until_refused(client.clone(), granted.clone())))
            .collect();
        eventually("sessions run", || scene.node.json("status")["running_sessions"] != 0);
        block(&scene.node, &node, &alice);
        // Each task keeps the sessions that it has started.
        let held: Vec<_> = starters.into_iter().map(|one| runtime.block_on(one).unwrap()).collect();
        eventually("no session survives", || scene.node.json("status")["running_sessions"] == 0);
        drop(held);
        fs::write(scene.node.path().join("config.toml"), "").unwrap();
        node.signal("HUP");
        eventually("the identity is no longer blocked", || {
            let started = runtime.block_on(client.connect(&granted));
            started.is_ok()
        });
        client.close();
        eventually("no session runs", || scene.node.json("status")["running_sessions"] == 0);
    }
}

fn client_of(home: &Home) -> Client {
    Client::new(&levada_home::Home::at(home.path()).unwrap()).unwrap()
}

/// Starts the session until the node refuses: the running sessions.
async fn start_until_refused(client: Arc<Client>, capability: Capability) -> Vec<Running> {
    let mut running = Vec::new();
    loop {
        match client.connect(&capability).await {
            Ok(started) => running.push(started),
            // The limit of sessions is reached: the earlier ones are ended.
            Err(ClientError::Unreachable(_)) => running.clear(),
            Err(_) => return running,
        }
    }
}

#[test]
fn session_limits_per_requester_leave_room_for_others() {
    let scene = Scene::new();
    let limits = "[limits]\nsessions = 6\nsessions_per_requester = 2\nsessions_reserved = 2\n";
    fs::write(scene.node.path().join("config.toml"), limits).unwrap();
    let node = scene.node.up("--demo --name well");
    node.welcome(&scene.alice, "well");
    node.welcome(&scene.bob, "well");
    let hold = |home: &Home| {
        let before = scene.node.json("status")["running_sessions"].as_u64().unwrap();
        let mut command = home.command(["run", "well/echo"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let runs = || scene.node.json("status")["running_sessions"] == before + 1;
        eventually("the session runs", runs);
        (child, input)
    };
    let mut held: Vec<_> = (0..2).map(|_| hold(&scene.alice)).collect();
    scene.alice.run("run well/echo").fails(122, "limits.sessions_per_requester");
    // The limit applies to the requester, whichever identity starts the session.
    let bob = scene.bob.identity();
    let for_bob = scene.alice.args(["request", "well/echo", "--for", &bob]).ok();
    scene.bob.args(["connect", &for_bob]).fails(122, "limits.sessions_per_requester");
    held.extend((0..2).map(|_| hold(&scene.bob)));
    let third = Home::new();
    node.welcome(&third, "well");
    third.run("run well/echo").fails(122, "limits.sessions_reserved");
    held.extend((0..2).map(|_| hold(&scene.node)));
    for (mut child, input) in held {
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_second_run_requests_and_starts_in_one_operation() {
    let scene = Scene::new();
    let padded = scene.node.path().join("padded.toml");
    fs::write(&padded, "name = 'padded'\ntype = 'echo'\nframing = 'block:512'\n").unwrap();
    let node = scene.node.up(&format!("--demo --name well --service {}", padded.display()));
    node.welcome(&scene.alice, "well");
    let count = |operation: &str| {
        let (_, metrics) = node.http("/metrics");
        let name =
            format!("levada_operations_total{{operation=\"{operation}\",outcome=\"done\"}} ");
        let line = metrics.lines().find(|line| line.starts_with(&name));
        line.map_or(0, |line| line[name.len()..].parse::<u64>().unwrap())
    };
    // The client learns the version of the node with its first answer.
    assert_eq!(scene.alice.run("run well/exec -- uname -s").ok(), "Linux");
    assert_eq!((count("request"), count("connect"), count("start")), (1, 1, 0));
    assert_eq!(scene.alice.run("run well/exec -- uname -s").ok(), "Linux");
    assert_eq!((count("request"), count("connect"), count("start")), (1, 1, 1));
    scene.alice.run("run well/exec -- cat /etc/passwd").denied("takes at most 0");
    scene.bob.args(["run", &format!("{}/clock", node.at())]).denied("may not request");
    // A framing other than that of the shared connection needs a dedicated connection, and two
    // operations.
    scene.alice.run("run well/padded").ok();
    assert_eq!((count("request"), count("connect"), count("start")), (2, 2, 1));
    let sessions = scene.node.json("sessions")["sessions"].as_array().unwrap().len();
    assert_eq!(sessions, 3);
}

#[test]
fn an_invalid_capability_is_refused_with_a_reason() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let capability = scene.alice.run("request well/clock").ok();
    let mut garbled = capability.clone().into_bytes();
    garbled[40] = if garbled[40] == b'a' { b'b' } else { b'a' };
    let garbled = String::from_utf8(garbled).unwrap();
    scene.alice.args(["connect", &garbled]).fails(2, "checksum");
    scene.alice.args(["connect", &capability[..capability.len() - 9]]).fails(2, "cut off");
    scene.alice.args(["inspect", &garbled]).fails(2, "checksum");
    // The node of this capability does not run.
    let other_home = Home::new();
    let other = other_home.up("--name other");
    let own = other_home.run("request other/clock").ok();
    drop(other);
    assert_eq!(other_home.args(["connect", &own]).code, 122);
    // From a file, and from standard input.
    let file = scene.alice.path().join("capability");
    std::fs::write(&file, format!("{capability}\n")).unwrap();
    scene.alice.args(["inspect", &format!("@{}", file.display())]).ok();
    scene.alice.with_input("connect -", capability.as_bytes()).ok();
    scene.alice.args(["connect", &capability]).denied("used up");
    // `inspect` shows the rights, and never the secret.
    let shown = scene.alice.args(["inspect", "--json", &capability]).ok();
    let tail = &capability[capability.len() - 40..];
    assert!(!shown.contains(tail) && shown.contains("clock"), "{shown}");
}

#[test]
fn a_wrong_node_key_is_refused_before_the_client_identifies_itself() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    let other = Home::new().identity();
    let at = format!("{other}@{}/clock", node.address());
    scene.alice.args(["run", &at]).fails(122, "nothing was sent");
    let (_, metrics) = node.http("/metrics");
    assert!(
        metrics.contains("levada_operations_total") || !metrics.contains("operation=\""),
        "{metrics}"
    );
    assert!(
        !node.log().contains(&scene.alice.identity()),
        "the node has seen the identity of the client"
    );
}

/// Pins `name` to `identity` at these addresses.
fn pin(home: &Home, name: &str, identity: &str, addresses: &[String]) {
    let known = Known::open(&home.path().join("known.db")).unwrap();
    known.forget(name).unwrap();
    known.pin(name, &identity.parse().unwrap(), addresses, UnixTime(1)).unwrap();
}

#[test]
fn loopback_addresses_of_another_machine_are_not_dialled() {
    let home = Home::new();
    let elsewhere = Home::new().identity();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let port = listener.local_addr().unwrap().port();
    // An address marked by another machine, one pinned by an older version, and a name that
    // resolves to loopback.
    let foreign = format!("{address}@0123456789abcdef0123");
    pin(&home, "box", &elsewhere, &[foreign, address.clone(), format!("localhost:{port}")]);
    home.run("run box/echo").fails(122, "unreachable");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // An explicit address is dialled.
    let at = format!("{elsewhere}@{address}/echo");
    let mut run = home.command(["run", &at]).stderr(Stdio::null()).spawn().unwrap();
    eventually("the address is dialled", || listener.accept().is_ok());
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn a_wrong_key_at_one_address_does_not_stop_the_others() {
    let home = Home::new();
    let other = Home::new();
    let own = home.up("--name own");
    let node = other.up("--name other");
    node.welcome(&home, "box");
    let [wrong, right] = [own.address(), node.address()].map(|address| {
        let identity = other.identity().parse().unwrap();
        Target::typed(identity, &address).addresses.remove(0)
    });
    let addresses = || home.json("peers ls")["peers"][0]["addresses"].take();
    pin(&home, "box", &other.identity(), &[wrong.clone(), right]);
    home.run("run box/clock").ok();
    assert_eq!(addresses(), serde_json::json!([node.address(), own.address()]));
    // Only a node with another key answers at the pinned address.
    let gone = Home::new().identity();
    pin(&home, "gone", &gone, &[wrong]);
    let ran = home.run("run gone/clock");
    assert!(ran.stderr.contains("no address leads to"), "{}", ran.stderr);
    ran.fails(122, "nothing was sent");
}

#[test]
fn an_invitation_marks_loopback_addresses_as_local() {
    let home = Home::new();
    let node = home.up_with("up --name well --listen 0.0.0.0:0 --http 127.0.0.1:0");
    let invitation = Invitation::from_text(&node.invite("")).unwrap();
    let bare: Vec<&String> =
        invitation.addresses().iter().filter(|one| !one.contains('@')).collect();
    assert!(bare.iter().all(|one| !one.starts_with("127.")), "{bare:?}");
    let local = invitation.addresses().iter().find(|one| one.starts_with("127.0.0.1:"));
    assert!(local.is_some_and(|one| one.contains('@')), "{:?}", invitation.addresses());
    let guest = Home::new();
    node.welcome(&guest, "well");
    let capability = guest.run("request well/clock").ok();
    let capability = Capability::from_text(&capability).unwrap();
    let is_bare = |one: &String| one.starts_with("127.") && !one.contains('@');
    assert!(!capability.addresses().iter().any(is_bare), "{:?}", capability.addresses());
}

#[test]
fn rights_given_by_an_invitation_can_be_revoked() {
    let scene = Scene::new();
    let node = scene.node.up("--name well");
    node.welcome(&scene.alice, "well");
    let held = scene.alice.run("request well/clock --uses 2").ok();
    let alice = scene.alice.identity();
    scene.node.args(["revoke", &alice]).ok();
    scene.alice.run("request well/clock").denied("may not request");
    // Capabilities that were granted before stay valid until they are revoked.
    scene.alice.args(["connect", &held]).ok();
    assert_eq!(scene.node.args(["revoke", &alice]).code, 1);
}
