//! Waits for a peer on the same processor.

use std::process::Command;

use crate::library::{compiled, with_library};

fn exchanges(mode: &str, spin: &str) {
    let program = compiled("sharing/waits.c", &["-pthread", "-rdynamic"]);
    let mut command = Command::new(program);
    command.arg(mode).env("LEVADA_FAST_SPIN", spin);
    with_library(&mut command);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {} {errors}", output.status);
    eprint!("{errors}");
}

#[test]
fn a_wait_for_a_peer_on_the_same_processor_yields() {
    exchanges("yields", "1");
}

#[test]
fn a_real_time_thread_sleeps_at_once() {
    exchanges("fifo", "1");
}

#[test]
fn without_spinning_no_wait_yields() {
    exchanges("asleep", "0");
}

#[test]
fn a_peer_that_lies_about_its_processor_changes_no_byte() {
    exchanges("lies", "1");
}
