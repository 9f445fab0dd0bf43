//! `levada up --check` and `levada doctor` find what a start would refuse, and change nothing on
//! disk.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::doctor::check;
use crate::support::{Home, Ran, own_loopback};

/// A configuration whose ports are free.
pub const FREE: &str = "listen = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n";

pub fn configure(home: &Home, text: &str) {
    fs::write(home.path().join("config.toml"), text).unwrap();
}

/// Everything below `folder`: mode and content.
pub fn listing(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let metadata = entry.metadata().unwrap();
            let content = match metadata.is_file() {
                true => fs::read(&path).unwrap(),
                false => Vec::new(),
            };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (metadata.permissions().mode(), content));
        }
    }
    found
}

/// The line of the error with which a command ended.
fn error(ran: &Ran) -> &str {
    assert_eq!(ran.code, 120, "{ran:?}");
    ran.stderr.lines().find(|line| line.starts_with("levada: ")).unwrap()
}

/// The first problem of a check, with its remedy.
fn wrong(ran: &Ran, name: &str) -> String {
    let start = format!("wrong  {name}: ");
    let mut lines = ran.stdout.lines().skip_while(|line| !line.starts_with(&start));
    let first = lines.next().unwrap_or_default().to_owned();
    first + lines.next().filter(|line| line.starts_with("       remedy")).unwrap_or_default()
}

/// Asserts that a start is refused with `text`, that `up --check` says the same, and that the check
/// `name` of `doctor` has it with a remedy. Both change nothing. `run` runs a verb.
#[track_caller]
pub fn refused_by(home: &Home, run: impl Fn(&str) -> Ran, name: &str, text: &str) {
    // The files have the owner of the first run.
    let checked = run("up --check");
    let before = listing(home.path());
    assert!(error(&checked).contains(text), "{checked:?}");
    assert_eq!(error(&run("up --check")), error(&checked));
    let report = run("doctor");
    assert_eq!(report.code, 1, "{}", report.stdout);
    let found = wrong(&report, name);
    // Some texts contain their remedy.
    let remedies = ["       remedy: ", ": rename it", ": restore it", "remove it", ": run `chmod"];
    assert!(remedies.iter().any(|text| found.contains(text)), "{name}: {}", report.stdout);
    assert!(listing(home.path()) == before, "{name}: {text}");
    assert_eq!(error(&run("up")), error(&checked));
}

#[track_caller]
pub fn refused(home: &Home, name: &str, text: &str) {
    refused_by(home, |line| home.run(line), name, text);
}

#[test]
fn a_port_of_another_program_is_found_before_a_start() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let middlebox = format!("[middlebox]\nlisten = '{address}'\nnext = 'a:1'\n");
    for text in [
        format!("listen = '{address}'\nhttp = false\n"),
        format!("listen = '127.0.0.1:0'\nhttp = '{address}'\n"),
        format!("{FREE}{middlebox}"),
    ] {
        configure(&home, &text);
        refused(&home, "ports", &format!("cannot listen on {address}"));
    }
    // Its port is free for TCP, which is tried first: another test may have it.
    let both = |datagrams: UdpSocket| {
        let address = datagrams.local_addr().unwrap();
        TcpListener::bind(address).is_ok().then_some((datagrams, address))
    };
    let found = (0..100).find_map(|_| both(UdpSocket::bind("127.0.0.1:0").unwrap()));
    let (_datagrams, address) = found.unwrap();
    configure(&home, &format!("listen = '{address}'\nudp = true\nhttp = false\n"));
    refused(&home, "ports", &format!("cannot listen on UDP at {address}"));
}

#[test]
fn a_port_of_a_forward_is_reported_and_does_not_prevent_a_start() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for more in ["target = 'a:1'", "socks = true"] {
        let forward = format!("[[forward]]\nservice = 'box/f'\n{more}\nlisten = '{port}'\n");
        configure(&home, &format!("{FREE}{forward}"));
        let checked = home.run("up --check");
        assert!(checked.stderr.contains("note: `forward[0].listen`: cannot listen"), "{checked:?}");
        checked.ok();
        let report = home.run("doctor");
        let found = report.stdout.contains(&format!("wrong  ports: 127.0.0.1:{port}"));
        assert!(report.code == 1 && found, "{}", report.stdout);
    }
    // Two forwards with one port.
    drop(taken);
    let forward = format!("[[forward]]\nservice = 'box/f'\nsocks = true\nlisten = '{port}'\n");
    configure(&home, &format!("{FREE}{forward}{forward}"));
    let text = "`forward[0].listen` and `forward[1].listen` use the same port";
    let checked = home.run("up --check");
    assert!(checked.stderr.contains(text), "{checked:?}");
    checked.ok();
    assert!(wrong(&home.run("doctor"), "ports").contains(text));
}

#[test]
fn two_sections_with_one_port_are_refused() {
    let home = Home::new();
    let ip = own_loopback();
    let middlebox = |at: &str| format!("[middlebox]\nlisten = '{at}'\nnext = 'a:1'\n");
    for (text, keys) in [
        (format!("listen = '{ip}:7101'\nhttp = '{ip}:7101'\n"), "`listen` and `http` use the same"),
        (format!("listen = ['{ip}:7101', '{ip}:7101']\n"), "`listen` has the same port twice"),
        (
            format!("listen = '{ip}:7101'\nhttp = false\n{}", middlebox("0.0.0.0:7101")),
            "`listen` and `middlebox.listen` use the same",
        ),
        (middlebox("127.0.0.1:5383"), "`http` and `middlebox.listen` use the same"),
    ] {
        configure(&home, &text);
        refused(&home, "configuration", keys);
    }
    // An option replaces one of them.
    configure(&home, &format!("listen = '{ip}:7101'\nhttp = '{ip}:7101'\n"));
    home.run("up --check --http 127.0.0.1:0").ok();
}

#[test]
fn the_ports_of_a_running_node_are_free_for_its_next_start() {
    let home = Home::new();
    let ip = own_loopback();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = |http: &str| format!("udp = true\nlisten = '{ip}:7101'\nhttp = '{http}'\n");
    configure(&home, &config(&format!("{ip}:7102")));
    let node = home.up_with("up");
    home.run("up --check").ok();
    assert_eq!(home.run("doctor").code, 0);
    // A change that the next start would refuse.
    configure(&home, &config(&address.to_string()));
    home.run("up --check").fails(120, &format!("cannot listen on {address}"));
    let report = home.run("doctor");
    assert!(report.stdout.contains("the next start fails"), "{}", report.stdout);
    drop(node);
}

#[test]
fn a_wrong_log_filter_is_found_before_a_start() {
    let home = Home::new();
    configure(&home, &format!("{FREE}log = '=[wrong'\n"));
    refused(&home, "log", "`log` in config.toml: `=[wrong` is no filter for the log");
    configure(&home, FREE);
    let with_variable = |line: &str| -> Ran {
        let mut command = home.command(line.split_whitespace());
        command.env("RUST_LOG", "=[wrong").output().unwrap().into()
    };
    refused_by(&home, with_variable, "log", "RUST_LOG: `=[wrong` is no filter for the log");
}

#[test]
fn checks_make_no_home() {
    let home = Home::new();
    let report = |ran: Ran| ran.ok();
    let none = home.path().join("none");
    for line in ["up --check", "doctor", "doctor --json"] {
        let mut command = home.command(line.split_whitespace());
        let text = report(command.env("LEVADA_HOME", &none).output().unwrap().into());
        assert!(line == "up --check" || text.contains("does not exist yet"), "{text}");
        assert!(!none.exists(), "{line}");
    }
}

#[test]
fn checks_change_nothing_after_a_stop_or_a_kill() {
    let home = Home::new();
    configure(&home, &format!("{FREE}name = 'well'\ncatalogue = true\n"));
    let unchanged = |what: &str| {
        let before = listing(home.path());
        home.run("up --check").ok();
        assert_eq!(home.run("doctor").code, 0, "{what}: {}", home.run("doctor").stdout);
        let after = listing(home.path());
        let differ = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let changed: Vec<_> = before.keys().chain(after.keys()).filter(differ).collect();
        assert!(changed.is_empty(), "{what}: {changed:?}");
    };
    let node = home.up_with("up");
    home.run("run well/clock").ok();
    home.run("stop").ok();
    assert_eq!(node.wait(), 0);
    unchanged("after a stop");
    let node = home.up_with("up");
    home.run("run well/clock").ok();
    node.kill();
    assert!(home.path().join("node.db-wal").exists());
    unchanged("after a kill");
    // The records of the killed node are still there.
    drop(home.up_with("up"));
}

#[test]
fn doctor_reports_a_broken_configuration_and_checks_no_defaults() {
    let home = Home::new();
    configure(&home, "name = 'well'\ncolour = 1\n");
    refused(&home, "configuration", "config.toml:2: key `colour`");
    let report = home.run("doctor");
    for name in ["services", "log", "ports", "multicast", "open files"] {
        let found = check(&report, name);
        assert!(found.starts_with("note") && found.contains("see the configuration"), "{found}");
    }
}

#[test]
fn doctor_reports_why_the_clock_was_not_accepted() {
    let home = Home::new();
    configure(&home, FREE);
    fs::write(home.path().join("node.db"), [7; 8192]).unwrap();
    let report = home.run("doctor --accept-clock");
    assert_eq!(report.code, 1, "{report:?}");
    let text = "wrong  clock: not accepted: ";
    assert!(report.stdout.contains(text), "{}", report.stdout);
    assert!(check(&report, "database").contains("levada restore"), "{}", report.stdout);
}
