//! Real programs under real supervisors, with and without a control group.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};
use tokio::time::{sleep, timeout};

use super::start::Containment;
use super::*;

/// Far longer than any step takes; only keeps a failing test from hanging.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const CONTAINMENTS: [Containment; 2] = [Containment::Cgroup, Containment::Tree];

/// Not a test: the supervisor of the tests. See `start.rs`.
#[test]
fn as_supervisor() {
    let Some(containment) = env::var_os(ARGUMENT) else { return };
    let _ = supervise(containment == WITH_CGROUP);
    std::process::exit(0);
}

/// Commands of shells that let a process outlive them. `STAY` writes its process id to a file and
/// does not exit.
const DETACHING: [&str; 6] = [
    "setsid STAY &",
    "(STAY &)",
    "setsid sh -c '(STAY &)'",
    "nohup STAY >/dev/null 2>&1 &",
    "setsid sh -c 'cd /; exec <&- >&- 2>&-; trap \"\" HUP TERM INT; STAY & exit'",
    "setsid setsid sh -c '(setsid sh -c \"(setsid STAY &)\" &)'",
];

/// A shell that runs `text`, with `FILE` and `STAY` filled in.
fn shell(text: &str, folder: &Path) -> Launch {
    let file = folder.join("processes");
    let stay = folder.join("stay");
    let script =
        format!("#!/bin/sh\necho $$ >> {}\nwhile :; do sleep 1000; done\n", file.display());
    fs::write(&stay, script).unwrap();
    fs::set_permissions(&stay, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let text = text.replace("FILE", file.to_str().unwrap());
    let mut launch = Launch::new("sh");
    launch.args(["-c", &text.replace("STAY", stay.to_str().unwrap())]).inherit_environment();
    launch
}

fn processes(folder: &TempDir) -> Vec<i32> {
    let text = fs::read_to_string(folder.path().join("processes")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Whether a process runs; a zombie does not.
fn runs(id: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, wait).await.unwrap();
}

/// Whether these tests may create control groups on this machine.
async fn cgroups_available() -> bool {
    let mut group = Group::start_by(&Launch::new("true"), Containment::Cgroup).await.unwrap();
    assert_eq!(group.code().await.unwrap(), 0);
    let made = group.has_cgroup();
    group.end().await;
    made
}

#[tokio::test]
async fn a_detached_process_does_not_outlive_a_program_that_ends() {
    for containment in CONTAINMENTS {
        for detaching in DETACHING {
            let folder = tempdir().unwrap();
            let text = format!("{detaching}\nuntil [ -s FILE ]; do sleep 0.01; done; exit 7");
            let launch = shell(&text, folder.path());
            let mut group = Group::start_by(&launch, containment).await.unwrap();
            assert_eq!(timeout(TEST_TIMEOUT, group.code()).await.unwrap().unwrap(), 7);
            let detached = processes(&folder);
            assert_eq!(detached.len(), 1);
            assert!(runs(detached[0]), "until the run is ended");
            timeout(TEST_TIMEOUT, group.end()).await.unwrap();
            assert!(!runs(detached[0]), "{containment:?}: {detaching}");
        }
    }
}

#[tokio::test]
async fn a_detached_process_does_not_outlive_a_dropped_run() {
    for containment in CONTAINMENTS {
        let folder = tempdir().unwrap();
        let text = format!("{}\nwait; sleep 1000", DETACHING.join("\n"));
        let group = Group::start_by(&shell(&text, folder.path()), containment).await.unwrap();
        until(|| processes(&folder).len() == DETACHING.len()).await;
        drop(group);
        until(|| !processes(&folder).into_iter().any(runs)).await;
    }
}

/// Each process forks the next one in a new session, and exits: a list of processes is out of date
/// when it is read.
#[tokio::test]
async fn a_chain_of_processes_that_fork_and_exit_ends() {
    let text = "export LINK='echo $$ > FILE; (setsid sh -c \"$LINK\" &) ; exit'; sh -c \"$LINK\"; exec sleep 1000";
    for containment in CONTAINMENTS {
        let folder = tempdir().unwrap();
        let group = Group::start_by(&shell(text, folder.path()), containment).await.unwrap();
        until(|| !processes(&folder).is_empty()).await;
        timeout(TEST_TIMEOUT, group.end()).await.unwrap();
        let last = processes(&folder);
        assert!(!last.into_iter().any(runs), "{containment:?}");
        fs::remove_file(folder.path().join("processes")).unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(processes(&folder).is_empty(), "{containment:?}: the chain continues");
    }
}

#[tokio::test]
async fn a_control_group_ends_the_processes_of_a_killed_supervisor() {
    if !cgroups_available().await {
        return;
    }
    let folder = tempdir().unwrap();
    let launch = shell("setsid STAY & exec STAY", folder.path());
    let mut group = Group::start_by(&launch, Containment::Cgroup).await.unwrap();
    until(|| processes(&folder).len() == 2).await;
    let supervisor = Pid::from_raw(group.supervisor().cast_signed()).unwrap();
    kill_process(supervisor, Signal::KILL).unwrap();
    assert!(timeout(TEST_TIMEOUT, group.code()).await.unwrap().is_err());
    timeout(TEST_TIMEOUT, group.end()).await.unwrap();
    assert!(!processes(&folder).into_iter().any(runs));
}

#[tokio::test]
async fn signals_that_would_terminate_a_supervisor_end_its_run() {
    let folder = tempdir().unwrap();
    let launch = shell("setsid STAY & exec STAY", folder.path());
    let mut group = Group::start_by(&launch, Containment::Tree).await.unwrap();
    until(|| processes(&folder).len() == 2).await;
    let supervisor = Pid::from_raw(group.supervisor().cast_signed()).unwrap();
    kill_process(supervisor, Signal::TERM).unwrap();
    assert_eq!(timeout(TEST_TIMEOUT, group.code()).await.unwrap().unwrap(), 129, "the hang-up");
    timeout(TEST_TIMEOUT, group.end()).await.unwrap();
    assert!(!processes(&folder).into_iter().any(runs));
}

#[tokio::test]
async fn terminate_sends_sigterm_to_the_program() {
    let group = Group::start_by(&Launch::new("sh"), Containment::Tree).await.unwrap();
    drop(group);
    let mut launch = Launch::new("sh");
    launch.args(["-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"]);
    launch.inherit_environment();
    let mut group = Group::start_by(&launch, Containment::Tree).await.unwrap();
    let mut line = [0; 6];
    let mut output = group.take_output().unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut output, &mut line).await.unwrap();
    group.terminate();
    assert_eq!(timeout(TEST_TIMEOUT, group.code()).await.unwrap().unwrap(), 5);
}
