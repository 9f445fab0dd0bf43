//! CPython's own tests of sockets, with `LEVADA_TEST_FULL`: each must have the same outcome with
//! and without the library. Some of them depend on time; a difference counts if it repeats.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::library::{in_full, with_library};

/// The program that runs tests, and writes a line for each start and outcome.
const RUNNER: &str = include_str!("python/outcomes.py");
/// How long a module may take.
const TIMEOUT: Duration = Duration::from_secs(400);
/// How often a difference must repeat.
const REPEATS: usize = 3;

/// Outcomes by the names of tests.
type Outcomes = BTreeMap<String, String>;

/// An interpreter that has the tests of the standard library.
fn interpreter() -> PathBuf {
    for candidate in ["python3", "/usr/bin/python3"] {
        // The program itself, where `python3` is a script that selects one.
        let program = "import sys, test.test_socket; print(sys.executable)";
        let asked = Command::new(candidate).args(["-c", program]).output();
        if let Ok(answer) = asked
            && answer.status.success()
        {
            return String::from_utf8(answer.stdout).unwrap().trim().into();
        }
    }
    panic!("no python3 has the package `test`: `apt-get install libpython3.11-testsuite`");
}

/// Runs modules or single tests.
fn outcomes(names: &[String], library: bool) -> Outcomes {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("outcomes.py");
    let list = folder.path().join("list");
    fs::write(&program, RUNNER).unwrap();
    let mut command = Command::new(interpreter());
    command.arg(&program).arg(&list).args(names).current_dir(folder.path());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("LD_PRELOAD");
    let log = File::create(folder.path().join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    if library {
        with_library(&mut command);
    }
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let mut ended = None;
    while ended.is_none() && start.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(20));
        ended = child.try_wait().unwrap();
    }
    // A module that takes too long, or one that has ended.
    let _ = child.kill();
    let _ = child.wait();
    let list = fs::read_to_string(&list).unwrap_or_default();
    let outcomes = parse(&list);
    let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    assert!(!outcomes.is_empty(), "{names:?} has no outcomes ({ended:?}): {log}");
    outcomes
}

/// `OUTCOME NAME` for each line. A test that was started last, and has no outcome, stopped its
/// module.
fn parse(list: &str) -> Outcomes {
    let lines = list.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(outcome, name)| (name.to_owned(), outcome.to_owned())).collect()
}

/// Tests whose outcomes differ, with both.
fn differences(without: &Outcomes, with: &Outcomes) -> Vec<(String, String)> {
    let names: std::collections::BTreeSet<_> = without.keys().chain(with.keys()).collect();
    let outcome = |of: &Outcomes, name: &String| of.get(name).cloned().unwrap_or("missing".into());
    let both = names.into_iter().map(|name| (name, outcome(without, name), outcome(with, name)));
    let differ = both.filter(|(_, one, other)| one != other);
    differ.map(|(name, one, other)| (name.clone(), format!("{one} → {other}"))).collect()
}

/// `LEVADA_PYTHON_PLAIN` compares two runs without the library.
fn library() -> bool {
    std::env::var_os("LEVADA_PYTHON_PLAIN").is_none()
}

fn compare(module: &str) {
    if !in_full() {
        eprintln!("skipped: needs LEVADA_TEST_FULL");
        return;
    }
    let module = [format!("test.{module}")];
    let (without, with) = both(&module);
    let passed = without.values().filter(|outcome| *outcome == "passed").count();
    eprintln!("{}: {passed} of {} tests pass", module[0], without.len());
    assert!(passed > 10, "the module does not run here: {without:?}");
    let mut differing = differences(&without, &with);
    for _ in 0..REPEATS {
        if differing.is_empty() {
            return;
        }
        eprintln!("again: {differing:?}");
        let names: Vec<String> = differing.into_iter().map(|(name, _)| loadable(&name)).collect();
        let (without, with) = both(&names);
        differing = differences(&without, &with);
    }
    // A test that stops the module comes first: those after it are only missing.
    differing.sort_by_key(|(_, outcomes)| !outcomes.contains("started"));
    differing.truncate(30);
    assert!(differing.is_empty(), "outcomes without → with the library: {differing:#?}");
}

/// Outcomes without and with the library, which run at the same time: most of the tests wait.
fn both(names: &[String]) -> (Outcomes, Outcomes) {
    thread::scope(|scope| {
        let without = scope.spawn(|| outcomes(names, false));
        let with = outcomes(names, library());
        (without.join().unwrap(), with)
    })
}

/// What a name is loaded by: `setUpClass (CLASS)` stands for the tests of a class.
fn loadable(name: &str) -> String {
    match name.split_once(" (") {
        Some((_, class)) => class.trim_end_matches(')').to_owned(),
        None => name.to_owned(),
    }
}

#[test]
fn test_socket_has_the_same_outcomes() {
    compare("test_socket");
}

#[test]
fn test_selectors_has_the_same_outcomes() {
    compare("test_selectors");
}

#[test]
fn test_asyncio_has_the_same_outcomes() {
    compare("test_asyncio");
}

#[test]
fn test_ssl_has_the_same_outcomes() {
    compare("test_ssl");
}
