//! A node as process 1 of a container, as an unprivileged user, and behind an advertised name in a
//! network namespace. The first and the last test need root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Home, Ran, eventually, signal};
use levada_capability::Invitation;
use levada_core::UnixTime;
use levada_home::known::Known;

const UP: [&str; 7] = ["up", "--name", "well", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
/// An unprivileged user, which every Linux has.
const USER: u32 = 65_534;

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The children of a process: number, name and state.
fn children(parent: u32) -> Vec<(u32, String, char)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = numbers.filter_map(|number| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let (before, after) = stat.rsplit_once(") ")?;
        let name = before.split_once('(')?.1.to_owned();
        let mut fields = after.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(parent)).then_some((number, name, state))
    });
    found.collect()
}

#[test]
fn as_process_1_it_reaps_orphans_and_ends_on_sigterm() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let home = Home::new();
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", env!("CARGO_BIN_EXE_levada")]).args(UP);
    command.env("LEVADA_HOME", home.path()).stdin(Stdio::null());
    let log = fs::File::create(home.path().join("up.log")).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut unshare = command.spawn().unwrap();
    eventually("the node answers", || home.run("status").code == 0);
    let first = children(unshare.id())[0].0;
    assert_eq!(children(first).len(), 1, "one node below the first process");
    home.run("run well/clock").ok();

    // A process whose parent ends becomes a child of process 1.
    let inside = ["--pid", "--mount", "sh", "-c", "sleep 1000 & exit 0"];
    let target = first.to_string();
    let status = Command::new("nsenter").args(["--target", &target]).args(inside).status();
    assert!(status.unwrap().success());
    let orphan = || children(first).into_iter().find(|(_, name, _)| name == "sleep");
    eventually("the orphan is adopted", || orphan().is_some());
    let (orphan, ..) = orphan().unwrap();
    signal(orphan, "KILL");
    eventually("the orphan is reaped", || !Path::new(&format!("/proc/{orphan}")).exists());

    home.run("run well/clock").ok();
    signal(first, "HUP");
    eventually("the signal is passed on", || {
        fs::read_to_string(home.path().join("up.log")).unwrap().contains("policy read again")
    });
    signal(first, "TERM");
    assert_eq!(unshare.wait().unwrap().code(), Some(0));
    home.run("status").fails(120, "levada up");
}

/// A home of [`USER`], with a copy of the program: the folder of the build may be unreadable to
/// that user.
struct Unprivileged {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Unprivileged {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("levada");
        // By another process: a fork of another test would have a copy that is open for writing
        // here, and a program that is open for writing cannot be started (ETXTBSY).
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_levada")).arg(&program).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        for path in [folder.path(), &home] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        Self { folder, program }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let user = format!("--reuid={USER}");
        let group = format!("--regid={USER}");
        command.args([&user, &group, "--clear-groups", "--no-new-privs", "--bounding-set=-all"]);
        command.arg(&self.program).args(words).stdin(Stdio::null()).current_dir("/");
        command.env("LEVADA_HOME", self.folder.path().join("home"));
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }
}

#[test]
fn a_node_runs_without_privileges() {
    if !is_root() {
        eprintln!("skipped: all other tests run without privileges already");
        return;
    }
    let user = Unprivileged::new();
    let mut node = user.command(&[&UP[..], &["--demo"]].concat());
    let mut node = node.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the node answers", || user.run(&["status"]).code == 0);
    assert_eq!(user.run(&["run", "well/exec", "--", "uname", "-s"]).ok(), "Linux");
    assert_eq!(user.run(&["run", "well/exec", "--pty", "--", "uname", "-s"]).ok(), "Linux\r");
    user.run(&["doctor"]).ok();
    user.run(&["stop"]).ok();
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn a_node_is_reached_at_its_advertised_address() {
    let home = Home::new();
    let wrong = |words: &[&str]| home.args(words);
    wrong(&["up", "--advertise", "127.0.0.1:1"]).fails(2, "other machines cannot use it");
    wrong(&["invite", "--address", "localhost:1"]).fails(2, "other machines cannot use it");
    wrong(&["invite", "--address", "box.example"]).fails(2, "HOST:PORT");
    if !is_root() {
        eprintln!("the rest is skipped: needs root");
        return;
    }
    let guest = Home::new();
    // The name has four addresses, of which one leads to the node. The others are loopback,
    // unroutable, and unused.
    let hosts = home.path().join("hosts");
    let addresses = ["127.0.0.1", "2001:db8::1", "192.0.2.9", "192.0.2.1"];
    fs::write(&hosts, addresses.map(|one| format!("{one} box.example\n")).concat()).unwrap();
    let script = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let up = ["up", "--name", "box", "--listen", "192.0.2.1:5000", "--http", "127.0.0.1:0"];
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", script]).arg(&hosts);
    command.arg(env!("CARGO_BIN_EXE_levada")).args(up);
    command.args(["--advertise", "box.example:5000", "--allow", &guest.identity()]);
    let log = fs::File::create(home.path().join("up.log")).unwrap();
    command.env("LEVADA_HOME", home.path()).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut node = command.spawn().unwrap();
    eventually("the node answers", || home.run("status").code == 0);
    assert_eq!(home.json("status")["advertised"], serde_json::json!(["box.example:5000"]));

    let invited = |options: &str| {
        let line = home.run(&format!("invite {options}")).ok();
        Invitation::from_text(line.strip_prefix("levada join ").unwrap()).unwrap()
    };
    assert_eq!(invited("").addresses(), ["box.example:5000", "192.0.2.1:5000"]);
    let mapped = invited("--address 198.51.100.1:80 --address [2001:db8::2]:80");
    assert_eq!(mapped.addresses()[..2], ["198.51.100.1:80", "[2001:db8::2]:80"]);

    let known = Known::open(&guest.path().join("known.db")).unwrap();
    let identity = home.identity().parse().unwrap();
    let named = "box.example:5000".to_owned();
    known.pin("box", &identity, &[named], UnixTime(1)).unwrap();
    let target = node.id().to_string();
    let mut run = Command::new("nsenter");
    run.args(["--target", &target, "--net", "--mount", env!("CARGO_BIN_EXE_levada")]);
    run.args(["run", "box/clock"]).env("LEVADA_HOME", guest.path());
    Ran::from(run.output().unwrap()).ok();
    home.run("stop").ok();
    assert_eq!(node.wait().unwrap().code(), Some(0));
}
