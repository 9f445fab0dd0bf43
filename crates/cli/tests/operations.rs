//! Operating a node: signals, readiness, locks, ports, disks, and `levada doctor`.

mod doctor;
mod drain;
mod files;
mod log;
mod records;
mod start;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Home, Node, Ran, STEP_TIMEOUT, eventually, shared};
use levada_core::{Clock, SystemClock};
use levada_node::store::Store;
use serde_json::Value;

const UP: &str = "up --name well --listen 127.0.0.1:0 --http 127.0.0.1:0";

/// Starts a client in the background.
fn start(home: &Home, words: &[&str]) -> Child {
    let mut command = home.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the node runs this number of sessions.
fn wait_for_sessions(home: &Home, count: u64) {
    eventually(&format!("{count} sessions run"), || {
        home.json("status")["running_sessions"] == count
    });
}

/// Has the node reload its configuration, and waits until its log contains `says` again.
fn reload(node: &Node<'_>, config: &str, says: &str) {
    let before = node.log().matches(says).count();
    fs::write(node.home.path().join("config.toml"), config).unwrap();
    node.signal("HUP");
    eventually(says, || node.log().matches(says).count() > before);
}

#[test]
fn sigterm_ends_the_node_and_notifies_running_sessions() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let mut client = start(&alice, &["run", "well/exec", "--", "cat"]);
    // Waiting for a child closes its input, which would end `cat`.
    let _input = client.stdin.take();
    wait_for_sessions(&home, 1);
    node.signal("TERM");
    Ran::from(client.wait_with_output().unwrap()).fails(122, "the node is stopping");
    assert_eq!(node.wait(), 0);
    home.run("status").fails(120, "levada up");
    alice.run("run well/clock").fails(122, "unreachable");
    // A restarted node finds the end in its audit log.
    let node = home.up_with(UP);
    let ends = home.json("sessions --log")["log"].clone();
    let ended =
        ends.as_array().unwrap().iter().any(|entry| entry["outcome"] == "ended by the node");
    assert!(ended, "{ends}");
    drop(node);
}

#[test]
fn sigterm_lets_a_session_end_by_itself() {
    let home = Home::new();
    let node = home.up("--demo --name well");
    let address = node.address();
    let mut client = start(&home, &["run", "well/exec", "--", "cat"]);
    wait_for_sessions(&home, 1);
    node.signal("TERM");
    eventually("the node accepts no connections", || {
        std::net::TcpStream::connect(&address).is_err()
    });
    std::io::Write::write_all(client.stdin.as_mut().unwrap(), b"last words").unwrap();
    drop(client.stdin.take());
    let output = client.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"last words"[..], Some(0)));
    assert_eq!(node.wait(), 0);
}

#[test]
fn sighup_ends_sessions_of_newly_blocked_identities() {
    let home = Home::new();
    let alice = Home::new();
    let node = home.up("--demo --name well");
    node.welcome(&alice, "well");
    let capability = alice.run("request well/clock --uses 9").ok();
    alice.args(["connect", &capability]).ok();
    let mut client = start(&alice, &["run", "well/exec", "--", "cat"]);
    // Waiting for a child closes its input, which would end `cat`.
    let _input = client.stdin.take();
    let own = start(&home, &["run", "well/exec", "--", "cat"]);
    wait_for_sessions(&home, 2);
    let block = format!("block = [\"{}\"]\n", alice.identity());
    reload(&node, &block, "policy read again");
    Ran::from(client.wait_with_output().unwrap()).denied("blocked");
    wait_for_sessions(&home, 1);
    alice.run("query well").denied("blocked");
    alice.run("run well/clock").denied("blocked");
    alice.args(["connect", &capability]).denied("blocked");
    let invitation = node.invite("");
    alice.args(["join", &invitation]).denied("blocked");

    // A configuration that cannot be read changes nothing.
    reload(&node, "block = []\nnome = 1\n", "config.toml:2: key `nome`");
    alice.args(["connect", &capability]).denied("blocked");
    reload(&node, "block = []\n", "policy read again");
    alice.args(["connect", &capability]).ok();
    alice.run("run well/clock").ok();
    wait_for_sessions(&home, 1);
    drop(own);
    // What takes effect at the next start is named.
    let middlebox = "block = []\n[middlebox]\nlisten = '127.0.0.1:0'\nnext = 'box.example:5382'\n";
    reload(&node, middlebox, "other keys have changed, and take effect at the next start");
    assert!(node.log().contains("middlebox"), "{}", node.log());
}

#[test]
fn sighup_withdraws_the_right_to_request_but_no_granted_capability() {
    let home = Home::new();
    let alice = Home::new();
    let allow = format!("allow = [\"{}\"]\n", alice.identity());
    fs::write(home.path().join("config.toml"), &allow).unwrap();
    let node = home.up("--name well");
    let clock = format!("{}/clock", node.at());
    alice.args(["run", &clock]).ok();
    let capability = alice.args(["request", &clock, "--uses", "2"]).ok();
    alice.args(["connect", &capability]).ok();
    reload(&node, "allow = []\n", "policy read again");
    alice.args(["run", &clock]).denied("may not request");
    alice.args(["request", &clock]).denied("may not request");
    alice.args(["connect", &capability]).ok();
    alice.args(["connect", &capability]).denied("used up");
    let only =
        format!("allow = [{{ identity = \"{}\", services = [\"echo\"] }}]", alice.identity());
    reload(&node, &only, "policy read again");
    alice.args(["request", &clock]).denied("may not request");
    alice.args(["request", &format!("{}/echo", node.at())]).ok();
}

#[test]
fn the_service_manager_is_notified_of_readiness_and_stopping() {
    let home = Home::new();
    let path = home.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    let receives = |word: &str| {
        let mut buffer = [0; 1024];
        let mut received = String::new();
        while !received.lines().any(|line| line == word) {
            let length = socket.recv(&mut buffer).unwrap();
            received = String::from_utf8_lossy(&buffer[..length]).into_owned();
            assert!(word == "STOPPING=1" || !received.contains("STOPPING"), "{received}");
        }
    };
    let mut command = home.command(UP.split_whitespace());
    command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).stderr(Stdio::null());
    let mut node = command.spawn().unwrap();
    receives("READY=1");
    // After READY=1 the node answers.
    home.run("status").ok();
    home.run("stop").ok();
    receives("STOPPING=1");
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn the_http_port_serves_health_and_metrics() {
    let home = Home::new();
    let node = home.up("--name well");
    assert_eq!(node.http("/healthz"), (200, "ok\n".into()));
    assert_eq!(node.http("/readyz"), (200, "ready\n".into()));
    assert_eq!(node.http("/else").0, 404);
    home.run("run well/clock").ok();
    let (status, text) = node.http("/metrics");
    assert_eq!(status, 200);
    for line in [
        "levada_operations_total{operation=\"request\",outcome=\"done\"} 1",
        "levada_operations_total{operation=\"connect\",outcome=\"done\"} 1",
        "# TYPE levada_sessions gauge",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in: {text}");
    }
}

#[test]
fn a_second_node_on_one_home_is_refused() {
    let home = Home::new();
    let node = home.up("--name well");
    home.run(UP).fails(120, &format!("process {}", node.process()));
    home.run("run well/clock").ok();
    assert_eq!(home.json("status")["process"], node.process());
}

#[test]
fn a_stale_control_socket_is_replaced() {
    let home = Home::new();
    home.up("--name well").kill();
    assert!(home.path().join("run/control.sock").exists(), "the killed node has left its socket");
    home.run("status").fails(120, "levada up");
    let report = home.run("doctor");
    assert!(report.stdout.contains("its socket still exists"), "{}", report.stdout);
    assert_eq!(report.code, 0);
    let node = home.up_with(UP);
    home.run("run well/clock").ok();
    drop(node);
}

#[test]
fn a_taken_default_port_is_replaced_by_a_free_one() {
    // The home comes first: with its permit, no test that needs this port runs.
    let home = Home::new();
    // Another process may have taken it already.
    let _taken = TcpListener::bind("127.0.0.1:5383");
    let node = home.up_with("up --name well --listen 127.0.0.1:0");
    eventually("the log reports it", || node.log().contains("port 5383 is taken"));
    assert_eq!(node.http("/healthz").0, 200);
    let http = node.http_address();
    eventually("the log shows the address", || {
        node.log().contains(&format!("http://{http}/metrics"))
    });

    // A port that was given explicitly is not replaced.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = format!("up --http 127.0.0.1:0 --listen {address}");
    Home::new().run(&line).fails(120, &format!("cannot listen on {address}"));
}

/// In a network namespace, because the default is every address of the machine.
#[test]
fn of_two_nodes_on_one_machine_one_gets_the_default_port() {
    let alone = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let as_root = ["--net"];
    let as_user = ["--net", "--user", "--map-root-user"];
    let options = [&as_root[..], &as_user[..]];
    let unshare = |options: &[&str]| alone(Command::new("unshare").args(options).arg("true"));
    let Some(options) = options.into_iter().find(|options| unshare(options)) else {
        eprintln!("skipped: this machine gives no network namespace");
        return;
    };
    let first = Home::new();
    let second = Home::new();
    let mut shell = Command::new("unshare");
    shell
        .args(options)
        .args(["sh", "-c"])
        .arg("LEVADA_HOME=$1 $0 up >$1/log 2>&1 & LEVADA_HOME=$2 $0 up >$2/log 2>&1 & wait");
    shell.arg(env!("CARGO_BIN_EXE_levada")).arg(first.path()).arg(second.path());
    let mut shell = shell.spawn().unwrap();
    let ports = [&first, &second].map(|home| {
        eventually("the node answers", || home.run("status").code == 0);
        let address = home.json("status")["listening"][0].as_str().unwrap().to_owned();
        address.rsplit_once(':').unwrap().1.to_owned()
    });
    assert_eq!(ports.iter().filter(|port| *port == "5382").count(), 1, "{ports:?}");
    for (home, port) in [&first, &second].into_iter().zip(&ports) {
        let log = || fs::read_to_string(home.path().join("log")).unwrap();
        // The log of both ends with "Try it"; only that of the second node names the taken port.
        let taken = || log().contains("port 5382 is taken");
        let expected = port != "5382";
        eventually("the log is complete", || log().contains("Try it") && taken() == expected);
    }
    first.run("stop").ok();
    second.run("stop").ok();
    shell.wait().unwrap();
}

/// Runs this test again, in a process and a mount namespace where `folder` is a small file system
/// of its own; false if this machine gives none.
pub fn on_a_disk_of_its_own(folder: &Path, options: &str) -> bool {
    let script = format!("mount -t tmpfs -o {options} none \"$1\" && shift && exec \"$@\"");
    let as_root: &[&str] = &["--mount"];
    let as_user: &[&str] = &["--mount", "--user", "--map-root-user"];
    let unshare = |options: &[&str], program: &[&OsStr]| {
        let mut command = Command::new("unshare");
        command.args(options).args(["sh", "-c", &script, "sh"]).arg(folder).args(program);
        command.env(DISK, folder);
        command
    };
    let works = |options: &&&[&str]| {
        let tried = unshare(options, &[OsStr::new("true")]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let Some(options) = [as_root, as_user].iter().find(works).copied() else { return false };
    let tests = std::env::current_exe().unwrap();
    let thread = std::thread::current();
    // The harness names the thread of a test after it.
    let name = thread.name().unwrap();
    let words = [tests.as_os_str(), "--exact".as_ref(), name.as_ref(), "--test-threads=2".as_ref()];
    let ran = Ran::from(unshare(options, &words).output().unwrap()).ok();
    assert!(ran.contains("1 passed"), "{ran}");
    true
}

/// Where that file system is, for the test that runs there.
pub const DISK: &str = "LEVADA_TEST_DISK";

fn disk_of(report: &Ran) -> String {
    let lines = report.stdout.lines().skip_while(|line| !line.contains(" disk: "));
    lines.take(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_full_disk_is_reported_to_the_operator_and_to_peers() {
    let Some(folder) = std::env::var_os(DISK) else {
        let _permit = shared();
        let folder = tempfile::tempdir().unwrap();
        if !on_a_disk_of_its_own(folder.path(), "size=16m") {
            eprintln!("skipped: this machine gives no mount namespace");
        }
        return;
    };
    let folder = Path::new(&folder);
    let home = Home::on(folder);
    let guest = Home::new();
    let file = home.path().join("object.json");
    fs::write(&file, "{\"a\":1}").unwrap();
    fs::write(home.path().join("config.toml"), "catalogue = true\n").unwrap();
    let node = home.up("--name well");
    node.welcome(&guest, "well");
    let publish = |version: &str| {
        let object = format!("hyperty/a@{version}");
        home.args(["catalogue", "publish", &object, file.to_str().unwrap()])
    };
    publish("1.0.0").ok();
    let ready = |expected: (u16, &str)| {
        eventually(expected.1, || node.http("/readyz") == (expected.0, expected.1.to_owned()));
    };
    ready((200, "ready\n"));
    assert_eq!(home.json("status")["disk"], "writable");

    let filler = folder.join("filler");
    let mut filling = fs::File::create(&filler).unwrap();
    // Writes of 1 KiB leave no space.
    let block = [0; 1024];
    while std::io::Write::write_all(&mut filling, &block).is_ok() {}
    ready((503, "the disk is full\n"));
    assert_eq!(home.json("status")["disk"], "full");
    let report = home.run("doctor");
    assert_eq!(report.code, 1, "{}", report.stdout);
    assert!(disk_of(&report).contains("full"), "{}", report.stdout);
    assert!(disk_of(&report).contains("remedy: free space"), "{}", report.stdout);
    // The write-ahead log may have room for a few more requests.
    eventually("a request is refused", || guest.run("request well/clock").code != 0);
    guest.run("request well/clock").fails(120, "the node's disk is full");
    eventually("the catalogue is full", || {
        let next = home.json("catalogue ls")["objects"].to_string().len();
        publish(&format!("2.{next}.{}", SystemClock.now().0)).code != 0
    });
    // Operations that free space still work.
    home.run("catalogue yank hyperty/a@1.0.0").ok();
    home.run("catalogue gc").ok();

    drop(filling);
    fs::remove_file(&filler).unwrap();
    ready((200, "ready\n"));
    home.run("doctor").ok();
    guest.run("request well/clock").ok();
    drop(node);

    // The same disk, mounted read-only.
    let remount = |options: &str| {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", options]).arg(folder).status().unwrap().success());
    };
    remount("remount,ro");
    let report = home.run("doctor");
    assert_eq!(report.code, 1, "{}", report.stdout);
    assert!(disk_of(&report).contains("read-only"), "{}", report.stdout);
    home.run(UP).fails(120, "ead-only");
    remount("remount,rw");
}

#[test]
fn doctor_never_takes_a_home_from_its_owner() {
    let home = Home::new();
    home.run("id").ok();
    // Only root can change the owner of a file.
    let file = home.path().join("stray");
    fs::write(&file, "").unwrap();
    if std::os::unix::fs::chown(&file, Some(65_534), None).is_err() {
        eprintln!("skipped: only root can change the owner of a file");
        return;
    }
    let report = home.run("doctor");
    let remedy = format!("sudo chown -R --reference={0} {0}", home.path().display());
    assert!(report.code == 1 && report.stdout.contains(&remedy), "{}", report.stdout);
    // If another user owns the whole home, the remedy is to run as that user.
    std::os::unix::fs::chown(home.path(), Some(65_534), None).unwrap();
    for entry in fs::read_dir(home.path()).unwrap() {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(65_534), None).unwrap();
    }
    let report = home.run("doctor");
    assert!(report.stdout.contains("sudo -u nobody LEVADA_HOME="), "{}", report.stdout);
    assert!(!report.stdout.contains("chown"), "{}", report.stdout);
}

#[test]
fn doctor_finds_a_clock_that_was_ahead_and_accepts_the_right_one() {
    let home = Home::new();
    let node = home.up("--name well");
    home.run("doctor").ok();
    assert_eq!(home.json("doctor")["healthy"], true);
    home.run("stop").ok();
    drop(node);
    let later = SystemClock.now().after(std::time::Duration::from_secs(10 * 86_400));
    Store::open(&home.path().join("node.db")).unwrap().store_time(later).unwrap();
    let report = home.run("doctor");
    assert_eq!(report.code, 1, "{}", report.stdout);
    assert!(report.stdout.contains("doctor --accept-clock"), "{}", report.stdout);
    home.run("doctor --accept-clock").ok();
    home.run("doctor").ok();

    // The same while the node runs.
    Store::open(&home.path().join("node.db")).unwrap().store_time(later).unwrap();
    let node = home.up_with(UP);
    let report = home.run("doctor --json");
    assert_eq!(report.code, 1, "{}", report.stdout);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["healthy"], false);
    home.run("doctor --accept-clock").ok();
    home.run("doctor").ok();
    home.run("run well/clock").ok();
    drop(node);
}
