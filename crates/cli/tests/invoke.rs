//! `levada invoke`: another node starts a session for the client. Three identities, real processes.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use crate::support::{self, Home, Node, eventually, signal};
use levada_capability::Capability;
use levada_core::{decode_text, encode_text};

const SHELL: &str = "name = 'sh'\ntype = 'exec'\n[[command]]\nprogram = 'sh'\nargs = '[\\s\\S]*'\n";

/// Three homes: the well with the program, the hub that starts it (the invoker), and the client
/// Alice.
struct Homes {
    well: Home,
    hub: Home,
    alice: Home,
}

/// Both nodes, and their services as NODE/SERVICE.
struct Scene<'a> {
    homes: &'a Homes,
    hub: Node<'a>,
    well: Node<'a>,
    invoke: String,
    sh: String,
}

impl Homes {
    fn new() -> Self {
        Self { well: Home::new(), hub: Home::new(), alice: Home::new() }
    }

    /// The hub may start the services `start`; Alice may request at both nodes, the hub at neither.
    fn scene(&self, start: &str) -> Scene<'_> {
        let file = |home: &Home, text: &str| {
            let file = home.path().join("service.toml");
            std::fs::write(&file, text).unwrap();
            file
        };
        let alice = self.alice.identity();
        let service = file(&self.well, SHELL);
        let options = format!("--name well --allow {alice} --service {}", service.display());
        let well = self.well.up(&options);
        let start = start.replace("WELL", &self.well.identity());
        let text = format!("name = 'invoke'\ntype = 'invoke'\nstart = [{start}]\n");
        let service = file(&self.hub, &text);
        let options = format!("--name hub --allow {alice} --service {}", service.display());
        let hub = self.hub.up(&options);
        let invoke = format!("{}/invoke", hub.at());
        let sh = format!("{}/sh", well.at());
        Scene { homes: self, hub, well, invoke, sh }
    }
}

impl Scene<'_> {
    /// A capability of Alice to run `script` at the well.
    fn capability(&self, options: &[&str], script: &str) -> String {
        let words = [&["request", &self.sh], options, &["--", "sh", "-c", script]].concat();
        self.homes.alice.args(words).ok()
    }

    fn words<'b>(&'b self, capability: &'b str) -> [&'b str; 4] {
        ["invoke", capability, "--on", &self.invoke]
    }

    /// Has Alice's session invoked, and waits for its first line.
    fn started(&self, capability: &str) -> Child {
        self.started_by(&self.homes.alice, capability)
    }

    fn started_by(&self, home: &Home, capability: &str) -> Child {
        let mut command = home.command(self.words(capability));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        assert_eq!(line(&mut child), "started\n");
        child
    }

    /// Waits until neither node runs a session.
    fn wait_until_idle(&self) {
        for home in [&self.homes.well, &self.homes.hub] {
            eventually("no session runs", || home.json("status")["running_sessions"] == 0);
        }
    }
}

/// The next line of a program that prints nothing after it.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// A script that does not end by itself.
const ENDLESS: &str = "echo started; exec sleep 1000";

#[test]
fn output_and_exit_code_are_relayed_and_the_invoker_starts_the_session() {
    let homes = Homes::new();
    let scene = homes.scene("'WELL/sh'");
    let capability = scene.capability(&["--uses", "2"], "echo out; echo err >&2; exit 7");
    let ran = homes.alice.args(scene.words(&capability));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\n", "err\n"));
    let log = homes.well.json("sessions --log");
    let entries = log["log"].as_array().unwrap();
    let start = entries.iter().find(|entry| entry["outcome"] == "started").unwrap();
    assert_eq!(start["identity"], homes.hub.identity());
    // Each invocation is one use of the client's own capability.
    assert_eq!(homes.alice.args(scene.words(&capability)).code, 7);
    homes.alice.args(scene.words(&capability)).denied("used up");
    scene.wait_until_idle();
    // The invoker stores no capability.
    for file in std::fs::read_dir(homes.hub.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let content = std::fs::read(&path).unwrap();
            assert!(!content.windows(6).any(|part| part == b"lvcap1"), "{}", path.display());
        }
    }
}

#[test]
fn input_and_terminals_are_relayed() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let capability = scene.capability(&[], "tr a-z A-Z");
    let line = scene.words(&capability).join(" ");
    assert_eq!(homes.alice.with_input(&line, b"water").ok(), "WATER");
    let capability = scene.capability(&["--pty"], "tty -s && stty size; exit 5");
    let ran = homes.alice.args(scene.words(&capability));
    assert_eq!((ran.stdout.as_str(), ran.code), ("24 80\r\n", 5));
}

#[test]
fn a_service_that_the_invoker_may_not_start_is_refused() {
    let homes = Homes::new();
    let scene = homes.scene("'WELL/echo', '*/c*'");
    let capability = scene.capability(&[], "echo started");
    homes.alice.args(scene.words(&capability)).denied("may not start \"sh\"");
    assert_eq!(homes.hub.json("sessions")["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn a_forged_service_name_starts_no_session() {
    let homes = Homes::new();
    let scene = homes.scene("'*/ec'");
    let capability = scene.capability(&[], "echo started");
    // The name of the service is a hint in the text, which its holder can change.
    let mut bytes = decode_text("lvcap1", &capability, 1 << 20).unwrap();
    let name = [2, b's', b'h'];
    let at = bytes.windows(3).rposition(|part| part == name).unwrap();
    bytes[at + 1..at + 3].copy_from_slice(b"ec");
    let lying = encode_text("lvcap1", &bytes);
    assert_eq!(Capability::from_text(&lying).unwrap().service(), "ec");
    homes.alice.args(scene.words(&lying)).denied("not one of that service");
    // Nothing was started, so no use was counted.
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "started");
}

#[test]
fn invoke_needs_the_right_to_distribute() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let capability = scene.capability(&["--uses", "9"], "echo started");
    let alice = homes.alice.identity();
    let mine = |rights: &str| {
        homes.alice.args(["grant", &capability, "--to", &alice, "--rights", rights]).ok()
    };
    homes.alice.args(scene.words(&mine("xt"))).denied("distribute");
    homes.alice.args(scene.words(&mine("td"))).denied("wider");
    assert_eq!(homes.alice.args(scene.words(&mine("xd"))).ok(), "started");
    // A capability that is bound to another identity.
    let hub = homes.hub.identity();
    let theirs = ["grant", &capability, "--to", &hub, "--rights", "xd"];
    let theirs = homes.alice.args(theirs).ok();
    homes.alice.args(scene.words(&theirs)).denied("bound to another identity");
}

#[test]
fn a_granted_capability_can_be_invoked() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let carol = Home::new();
    scene.hub.welcome(&carol, "hub");
    let capability = scene.capability(&[], "echo started");
    let identity = carol.identity();
    let granted = ["grant", &capability, "--to", &identity, "--rights", "xd"];
    let granted = homes.alice.args(granted).ok();
    assert_eq!(carol.args(["invoke", &granted, "--on", "hub/invoke"]).ok(), "started");
}

#[test]
fn the_client_can_end_an_invoked_session() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    // By SIGINT, as Ctrl-C sends it.
    let mut child = scene.started(&scene.capability(&[], ENDLESS));
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    scene.wait_until_idle();
    // By a killed client.
    let mut child = scene.started(&scene.capability(&[], ENDLESS));
    child.kill().unwrap();
    child.wait().unwrap();
    scene.wait_until_idle();
    // By `terminate` with the same capability.
    let capability = scene.capability(&[], ENDLESS);
    let child = scene.started(&capability);
    homes.alice.args(["terminate", &capability]).ok();
    let ended = support::Ran::from(child.wait_with_output().unwrap());
    ended.denied("the session was terminated");
    scene.wait_until_idle();
}

#[test]
fn only_authorised_identities_can_terminate_an_invoked_session() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let carol = Home::new();
    scene.hub.welcome(&carol, "hub");
    let capability = scene.capability(&["--uses", "2"], "echo started; exec cat");
    let identity = carol.identity();
    let granted = ["grant", &capability, "--to", &identity, "--rights", "xd"];
    let granted = homes.alice.args(granted).ok();
    let mut child = scene.started_by(&carol, &granted);
    // Not the invoker, nor a holder without the right to terminate, nor an uninvolved identity.
    homes.hub.args(["terminate", &granted]).denied("bound to another identity");
    carol.args(["terminate", &granted]).denied("lacks the right to terminate");
    Home::new().args(["terminate", &capability]).denied("bound to another identity");
    child.stdin.as_mut().unwrap().write_all(b"it goes on\n").unwrap();
    assert_eq!(line(&mut child), "it goes on\n");
    homes.alice.args(["terminate", &capability]).ok();
    let ended = support::Ran::from(child.wait_with_output().unwrap());
    ended.denied("the session was terminated");
    scene.wait_until_idle();
    carol.args(scene.words(&granted)).denied("terminated");
}

#[test]
fn the_invoker_dials_a_pinned_node_at_its_pinned_addresses_only() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    // The hub has pinned the well and its address.
    scene.well.welcome(&homes.hub, "well");
    let capability = scene.capability(&[], "echo started");
    assert_eq!(homes.alice.args(scene.words(&capability)).ok(), "started");
    // A client writes the address of another listener into the text.
    let capability = scene.capability(&[], "echo started");
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bytes = decode_text("lvcap1", &capability, 1 << 20).unwrap();
    let told = scene.well.address();
    let lure = trap.local_addr().unwrap().to_string();
    assert_eq!(told.len(), lure.len(), "{told} {lure}");
    let at = bytes.windows(told.len()).rposition(|part| part == told.as_bytes()).unwrap();
    bytes[at..at + lure.len()].copy_from_slice(lure.as_bytes());
    let luring = encode_text("lvcap1", &bytes);
    let words = scene.words(&luring).map(str::to_owned);
    let Scene { hub, well, .. } = scene;
    well.kill();
    homes.alice.args(words).fails(122, "does not reach");
    trap.set_nonblocking(true).unwrap();
    assert_eq!(trap.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(hub);
}

#[test]
fn a_killed_invoker_ends_its_sessions() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let child = scene.started(&scene.capability(&[], ENDLESS));
    let Scene { hub, well, .. } = scene;
    hub.kill();
    assert_ne!(child.wait_with_output().unwrap().status.code(), Some(0));
    eventually("no session runs", || homes.well.json("status")["running_sessions"] == 0);
    drop(well);
}

#[test]
fn invoke_reports_an_unreachable_node() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let capability = scene.capability(&[], "echo started");
    let words = scene.words(&capability).map(str::to_owned);
    let Scene { hub, well, .. } = scene;
    well.kill();
    homes.alice.args(words).fails(122, "does not reach");
    drop(hub);
}
