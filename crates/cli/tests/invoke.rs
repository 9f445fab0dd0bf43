//! Having another node start a session: three identities, real processes.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::support::{self, Home, Node, eventually};
use levada_capability::Capability;
use levada_core::{decode_text, encode_text};

const SHELL: &str = "name = 'sh'\ntype = 'exec'\n[[command]]\nprogram = 'sh'\nargs = '[\\s\\S]*'\n";

/// Three homes: the node with the program, the one that starts it, and who wants it started.
struct Homes {
    well: Home,
    hub: Home,
    alice: Home,
}

/// Both nodes, with places as one types them.
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

    /// The hub may start what `start` says; Alice may request at both nodes, the hub at neither.
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
        let (invoke, sh) = (format!("{}/invoke", hub.at()), format!("{}/sh", well.at()));
        Scene { homes: self, hub, well, invoke, sh }
    }
}

impl Scene<'_> {
    /// A capability of Alice's to run `script` at the well.
    fn capability(&self, options: &[&str], script: &str) -> String {
        let words = [&["request", &self.sh], options, &["--", "sh", "-c", script]].concat();
        self.homes.alice.args(words).ok()
    }

    fn words<'b>(&'b self, capability: &'b str) -> [&'b str; 4] {
        ["invoke", capability, "--on", &self.invoke]
    }

    /// Has a session of Alice's started, and waits for its first line.
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

    /// Waits until neither node runs anything.
    fn rests(&self) {
        for home in [&self.homes.well, &self.homes.hub] {
            eventually("no session runs", || home.json("status")["running_sessions"] == 0);
        }
    }
}

/// The next line of a program that says nothing more behind it.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Runs until it is ended.
const ENDLESS: &str = "echo started; exec sleep 1000";

#[test]
fn the_output_comes_back_with_the_exit_code_and_the_invoker_has_started_it() {
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
    scene.rests();
    // The invoker keeps nothing that could be used.
    for file in std::fs::read_dir(homes.hub.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let content = std::fs::read(&path).unwrap();
            assert!(!content.windows(6).any(|part| part == b"lvcap1"), "{}", path.display());
        }
    }
}

#[test]
fn input_goes_there_and_a_terminal_too() {
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
fn what_the_invoker_may_not_start_is_refused_at_the_request() {
    let homes = Homes::new();
    let scene = homes.scene("'WELL/echo', '*/c*'");
    let capability = scene.capability(&[], "echo started");
    homes.alice.args(scene.words(&capability)).denied("may not start \"sh\"");
    assert_eq!(homes.hub.json("sessions")["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn a_capability_that_lies_about_its_service_starts_nothing() {
    let homes = Homes::new();
    let scene = homes.scene("'*/ec'");
    let capability = scene.capability(&[], "echo started");
    // The name of the service is a hint in the text: whoever holds the text can write another there.
    let mut bytes = decode_text("lvcap1", &capability, 1 << 20).unwrap();
    let name = [2, b's', b'h'];
    let at = bytes.windows(3).rposition(|part| part == name).unwrap();
    bytes[at + 1..at + 3].copy_from_slice(b"ec");
    let lying = encode_text("lvcap1", &bytes);
    assert_eq!(Capability::from_text(&lying).unwrap().service(), "ec");
    homes.alice.args(scene.words(&lying)).denied("not one of that service");
    // Nothing was started, so no use is gone.
    assert_eq!(homes.alice.args(["connect", &capability]).ok(), "started");
}

#[test]
fn only_what_may_be_passed_on_can_be_invoked() {
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
    // Bound to somebody else.
    let hub = homes.hub.identity();
    let theirs = ["grant", &capability, "--to", &hub, "--rights", "xd"];
    let theirs = homes.alice.args(theirs).ok();
    homes.alice.args(scene.words(&theirs)).denied("bound to another identity");
}

#[test]
fn a_third_identity_that_was_granted_it_can_have_it_invoked() {
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
fn who_wanted_it_ends_it() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    // By a signal, as Ctrl-C sends it.
    let mut child = scene.started(&scene.capability(&[], ENDLESS));
    let process = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &process]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    scene.rests();
    // By going away.
    let mut child = scene.started(&scene.capability(&[], ENDLESS));
    child.kill().unwrap();
    child.wait().unwrap();
    scene.rests();
    // With its own capability, from anywhere.
    let capability = scene.capability(&[], ENDLESS);
    let child = scene.started(&capability);
    homes.alice.args(["terminate", &capability]).ok();
    let ended = support::Ran::from(child.wait_with_output().unwrap());
    ended.denied("the session was terminated");
    scene.rests();
}

#[test]
fn it_is_terminated_by_who_may_and_goes_on_for_who_may_not() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let carol = Home::new();
    scene.hub.welcome(&carol, "hub");
    let capability = scene.capability(&["--uses", "2"], "echo started; exec cat");
    let identity = carol.identity();
    let granted = ["grant", &capability, "--to", &identity, "--rights", "xd"];
    let granted = homes.alice.args(granted).ok();
    let mut child = scene.started_by(&carol, &granted);
    // Neither who started it, nor who may do only that, nor somebody else.
    homes.hub.args(["terminate", &granted]).denied("bound to another identity");
    carol.args(["terminate", &granted]).denied("lacks the right to terminate");
    Home::new().args(["terminate", &capability]).denied("bound to another identity");
    child.stdin.as_mut().unwrap().write_all(b"it goes on\n").unwrap();
    assert_eq!(line(&mut child), "it goes on\n");
    homes.alice.args(["terminate", &capability]).ok();
    let ended = support::Ran::from(child.wait_with_output().unwrap());
    ended.denied("the session was terminated");
    scene.rests();
    carol.args(scene.words(&granted)).denied("terminated");
}

#[test]
fn a_node_that_the_invoker_knows_is_called_nowhere_else() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    // The hub knows the well by its address.
    scene.well.welcome(&homes.hub, "well");
    let capability = scene.capability(&[], "echo started");
    assert_eq!(homes.alice.args(scene.words(&capability)).ok(), "started");
    // A client writes another address into the text, of a port that listens.
    let capability = scene.capability(&[], "echo started");
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bytes = decode_text("lvcap1", &capability, 1 << 20).unwrap();
    let (told, lure) = (scene.well.address(), trap.local_addr().unwrap().to_string());
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
fn the_invoker_that_goes_away_takes_it_along() {
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
fn a_node_that_cannot_be_reached_is_said_to_be_so() {
    let homes = Homes::new();
    let scene = homes.scene("'*/*'");
    let capability = scene.capability(&[], "echo started");
    let words = scene.words(&capability).map(str::to_owned);
    let Scene { hub, well, .. } = scene;
    well.kill();
    homes.alice.args(words).fails(122, "does not reach");
    drop(hub);
}
