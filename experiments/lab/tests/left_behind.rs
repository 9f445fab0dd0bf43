//! A lab leaves nothing behind, also if its process is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use levada_lab::{Backend, Lab, Link, Options};

/// The environment variable that makes this executable, started again, a process with a lab, and
/// says how it ends.
const ROLE: &str = "LEVADA_LAB_TEST_ROLE";

/// The argument that marks programs of the lab of this process.
fn mark(process: u32) -> String {
    format!("levada-lab-test-{process}")
}

/// A lab with a child that has a grandchild.
fn build() -> (Lab, Child) {
    let options = Options { backend: Some(Backend::User), ..Options::default() };
    let mut lab = Lab::new(options).unwrap();
    let nodes = lab.chain(2, &Link::new()).unwrap();
    let script = "sh -c 'echo ready; sleep 600; :' \"$0\" & wait";
    let mut child = nodes[1]
        .spawn("sh", |sh| {
            sh.args(["-c", script, &mark(std::process::id())]).stdout(Stdio::piped());
        })
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (lab, child)
}

/// The helper process of the tests below; no test of its own.
#[test]
fn a_process_with_a_lab() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let _lab = build();
    println!("\nbuilt");
    assert!(role != "panic", "as asked");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn dropping_the_lab_ends_all_programs() {
    let (lab, mut child) = build();
    let spaces = spaces_of(std::process::id());
    assert_eq!(spaces.len(), 4, "the host's and three nodes'");
    assert!(programs(std::process::id()).len() >= 2);
    drop(lab);
    assert_eq!(programs(std::process::id()), Vec::<PathBuf>::new());
    assert_eq!(spaces_of(std::process::id()).len(), 1);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    for (role, signal) in
        [("panic", None), ("wait", Some("INT")), ("wait", Some("KILL")), ("wait", Some("TERM"))]
    {
        let (mut child, spaces) = start(role);
        if let Some(signal) = signal {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        }
        child.wait().unwrap();
        let gone = || programs(child.id()).is_empty() && !spaces.iter().any(|space| is_used(space));
        assert!(eventually(gone), "{role}, {signal:?}: {:?}", programs(child.id()));
    }
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains(" l0:"), "{devices}");
}

/// A process with a lab, and the network namespaces that it made.
fn start(role: &str) -> (Child, Vec<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_with_a_lab", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "built"));
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let mut spaces = spaces_of(child.id());
    spaces.retain(|space| *space != own.to_string_lossy());
    assert_eq!(spaces.len(), 3);
    assert!(programs(child.id()).len() >= 2);
    (child, spaces)
}

/// The network namespaces of a process's threads, each once.
fn spaces_of(process: u32) -> Vec<String> {
    let mut spaces: Vec<String> = entries(&format!("/proc/{process}/task"))
        .filter_map(|thread| std::fs::read_link(thread.join("ns/net")).ok())
        .map(|space| space.to_string_lossy().into_owned())
        .collect();
    spaces.sort();
    spaces.dedup();
    spaces
}

/// Whether a process is in this namespace.
fn is_used(space: &str) -> bool {
    entries("/proc").any(|process| {
        std::fs::read_link(process.join("ns/net")).is_ok_and(|own| own.to_string_lossy() == space)
    })
}

/// The programs that the lab of a process started, and that still run.
fn programs(process: u32) -> Vec<PathBuf> {
    let mark = mark(process);
    let marked = |path: &PathBuf| {
        let arguments = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).split('\0').any(|argument| argument == mark)
    };
    entries("/proc").filter(marked).collect()
}

fn entries(folder: &str) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Whether `holds` becomes true within the time limit.
fn eventually(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
