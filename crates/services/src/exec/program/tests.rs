//! Real programs under real supervisors, in both ways of holding a run together.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};
use tokio::time::{sleep, timeout};

use super::start::Way;
use super::*;

/// Far longer than anything here takes; only keeps a failing test from hanging.
const HANGING: Duration = Duration::from_secs(120);
const WAYS: [Way; 2] = [Way::Cgroup, Way::Tree];

/// Not a test: the supervisor of those that are. See `group.rs`.
#[test]
fn as_supervisor() {
    let Some(way) = env::var_os(ARGUMENT) else { return };
    let _ = supervise(way == WITH_CGROUP);
    std::process::exit(0);
}

/// What shells do so that a process outlives them. `STAY` writes its number to a file and stays.
const HIDING: [&str; 6] = [
    "setsid STAY &",
    "(STAY &)",
    "setsid sh -c '(STAY &)'",
    "nohup STAY >/dev/null 2>&1 &",
    "setsid sh -c 'cd /; exec <&- >&- 2>&-; trap \"\" HUP TERM INT; STAY & exit'",
    "setsid setsid sh -c '(setsid sh -c \"(setsid STAY &)\" &)'",
];

/// A shell that runs `text`, with `FILE` and `STAY` filled in.
fn shell(text: &str, folder: &Path) -> Launch {
    let (file, stay) = (folder.join("processes"), folder.join("stay"));
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

/// Whether a process runs; one that another reaper has yet to take away does not.
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
    timeout(HANGING, wait).await.unwrap();
}

/// Whether this machine lets these tests make control groups.
async fn cgroups_are_here() -> bool {
    let mut group = Group::start_by(&Launch::new("true"), Way::Cgroup).await.unwrap();
    assert_eq!(group.code().await.unwrap(), 0);
    let made = group.has_cgroup();
    group.end().await;
    made
}

#[tokio::test]
async fn a_process_that_hides_does_not_outlive_a_program_that_ends_by_itself() {
    for way in WAYS {
        for hiding in HIDING {
            let folder = tempdir().unwrap();
            let text = format!("{hiding}\nuntil [ -s FILE ]; do sleep 0.01; done; exit 7");
            let launch = shell(&text, folder.path());
            let mut group = Group::start_by(&launch, way).await.unwrap();
            assert_eq!(timeout(HANGING, group.code()).await.unwrap().unwrap(), 7);
            let hidden = processes(&folder);
            assert_eq!(hidden.len(), 1);
            assert!(runs(hidden[0]), "until the run is ended");
            timeout(HANGING, group.end()).await.unwrap();
            assert!(!runs(hidden[0]), "{way:?}: {hiding}");
        }
    }
}

#[tokio::test]
async fn a_process_that_hides_does_not_outlive_a_run_that_is_dropped() {
    for way in WAYS {
        let folder = tempdir().unwrap();
        let text = format!("{}\nwait; sleep 1000", HIDING.join("\n"));
        let group = Group::start_by(&shell(&text, folder.path()), way).await.unwrap();
        until(|| processes(&folder).len() == HIDING.len()).await;
        drop(group);
        until(|| !processes(&folder).into_iter().any(runs)).await;
    }
}

/// Each process forks the next one, in a session of its own, and exits: a list of processes is out of date before it
/// is read.
#[tokio::test]
async fn a_chain_of_processes_that_fork_and_exit_ends() {
    let text = "export LINK='echo $$ > FILE; (setsid sh -c \"$LINK\" &) ; exit'; sh -c \"$LINK\"; exec sleep 1000";
    for way in WAYS {
        let folder = tempdir().unwrap();
        let group = Group::start_by(&shell(text, folder.path()), way).await.unwrap();
        until(|| !processes(&folder).is_empty()).await;
        timeout(HANGING, group.end()).await.unwrap();
        let last = processes(&folder);
        assert!(!last.into_iter().any(runs), "{way:?}");
        fs::remove_file(folder.path().join("processes")).unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(processes(&folder).is_empty(), "{way:?}: it goes on");
    }
}

#[tokio::test]
async fn a_control_group_holds_what_a_killed_supervisor_leaves() {
    if !cgroups_are_here().await {
        return;
    }
    let folder = tempdir().unwrap();
    let launch = shell("setsid STAY & exec STAY", folder.path());
    let mut group = Group::start_by(&launch, Way::Cgroup).await.unwrap();
    until(|| processes(&folder).len() == 2).await;
    let supervisor = Pid::from_raw(group.supervisor().cast_signed()).unwrap();
    kill_process(supervisor, Signal::KILL).unwrap();
    assert!(timeout(HANGING, group.code()).await.unwrap().is_err());
    timeout(HANGING, group.end()).await.unwrap();
    assert!(!processes(&folder).into_iter().any(runs));
}

#[tokio::test]
async fn signals_that_would_end_a_supervisor_end_its_run() {
    let folder = tempdir().unwrap();
    let launch = shell("setsid STAY & exec STAY", folder.path());
    let mut group = Group::start_by(&launch, Way::Tree).await.unwrap();
    until(|| processes(&folder).len() == 2).await;
    let supervisor = Pid::from_raw(group.supervisor().cast_signed()).unwrap();
    kill_process(supervisor, Signal::TERM).unwrap();
    assert_eq!(timeout(HANGING, group.code()).await.unwrap().unwrap(), 129, "the hang-up");
    timeout(HANGING, group.end()).await.unwrap();
    assert!(!processes(&folder).into_iter().any(runs));
}

#[tokio::test]
async fn a_program_is_asked_to_end() {
    let group = Group::start_by(&Launch::new("sh"), Way::Tree).await.unwrap();
    drop(group);
    let mut launch = Launch::new("sh");
    launch.args(["-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"]);
    launch.inherit_environment();
    let mut group = Group::start_by(&launch, Way::Tree).await.unwrap();
    let mut line = [0; 6];
    let mut output = group.take_output().unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut output, &mut line).await.unwrap();
    group.terminate();
    assert_eq!(timeout(HANGING, group.code()).await.unwrap().unwrap(), 5);
}
