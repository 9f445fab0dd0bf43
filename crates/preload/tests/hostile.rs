//! A child of a fork that has given up its user attacks its parent, by all that it has inherited.

use std::path::PathBuf;
use std::process::Command;

use levada_monitor::SOCKET_VARIABLE;

use crate::library::{compiled, folder, start_monitor, with_library};

fn attack(mode: &str) {
    attack_at(None, mode);
}

fn attack_at(monitor: Option<PathBuf>, mode: &str) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can start a child that gives up its user");
        return;
    }
    let program: PathBuf = compiled("hostile/child.c", &["-pthread"]);
    let mut command = Command::new(&program);
    command.arg(mode);
    with_library(&mut command);
    command.envs(monitor.map(|socket| (SOCKET_VARIABLE, socket)));
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {} {errors}", output.status);
}

#[test]
fn shared_memory_has_no_addresses() {
    attack("addresses");
}

#[test]
fn a_child_that_writes_anything_into_shared_memory_harms_no_memory_and_no_other_connection() {
    // Under a monitor of its own: others would stay on TCP while the account of memory is wrong.
    let folder = folder();
    attack_at(Some(start_monitor(folder.path())), "scribble");
}

#[test]
fn a_child_sees_nothing_of_other_processes_over_the_connection_that_it_inherits() {
    attack("list");
}

#[test]
fn a_child_receives_no_descriptor_of_its_parent() {
    attack("peek");
}

#[test]
fn a_child_that_fills_what_wakes_its_parent_keeps_no_connection_from_being_woken() {
    attack("poison");
}
