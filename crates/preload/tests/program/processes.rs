//! Processes: fork, exec, programs that get a connection as their standard input and output.

use std::ffi::{c_char, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{mem, ptr};

use crate::call::{Errno, Reply, call};
use crate::control::Control;
use crate::sockets::done;
use crate::state::{State, Words};

/// Handles a line after which another image or another process continues. `Some` is an answer.
pub fn changes_control(state: &'static State, control: &mut Control, line: &str) -> Option<String> {
    let mut words = Words::new(line);
    match words.text() {
        "fork" => Some(fork(state, control, words.text())),
        "exec" => Some(exec(state, control, words.text())),
        "exit" => std::process::exit(words.number()),
        // SAFETY: the call does not return.
        "exit-now" => unsafe { libc::_exit(words.number()) },
        _ => None,
    }
}

/// `fork NAME`: the child connects to the run under this name. Both processes answer.
fn fork(state: &State, control: &mut Control, name: &str) -> String {
    match call!(libc::fork:) {
        Ok(0) => *control = Control::connect(&state.folder, name),
        Ok(_) => {}
        Err(errno) => return format!("! {errno}"),
    }
    "=".to_owned()
}

/// `exec keep|plain`: this program again, for `plain` without the library.
fn exec(state: &State, control: &Control, how: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("-").arg(&state.folder).arg(control.descriptor().to_string());
    command.args(state.all().iter().map(|(slot, descriptor)| format!("{slot}={descriptor}")));
    if how == "plain" {
        command.env_remove("LD_PRELOAD");
    }
    format!("! {}", command.exec())
}

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    match verb {
        "child" => wait(),
        _ => {
            let way = words.text();
            let program = words.text();
            let slot = words.text();
            spawn(way, program, state.descriptor(slot))
        }
    }
}

/// `child`: waits for a child, and says how it ended.
fn wait() -> Reply {
    let mut status = 0;
    loop {
        match call!(libc::waitpid: -1, &raw mut status, 0) {
            Err(Errno(libc::EINTR)) => {}
            other => break other,
        }
    }?;
    Ok(if libc::WIFEXITED(status) {
        format!("exited {}", libc::WEXITSTATUS(status))
    } else {
        format!("killed {}", libc::WTERMSIG(status))
    })
}

/// `spawn posix|fork|command PROGRAM SLOT`
fn spawn(way: &str, program: &str, descriptor: RawFd) -> Reply {
    let path = std::ffi::CString::new(program).unwrap();
    let arguments = [path.as_ptr().cast_mut(), ptr::null_mut()];
    match way {
        "posix" => posix_spawn(&arguments, descriptor),
        "fork" => {
            let child = call!(libc::fork:)?;
            if child == 0 {
                let _ = call!(libc::dup2: descriptor, 0);
                let _ = call!(libc::dup2: descriptor, 1);
                let arguments: *const *mut c_char = arguments.as_ptr();
                let _ = call!(libc::execvp: path.as_ptr(), arguments.cast());
                // SAFETY: the call does not return.
                unsafe { libc::_exit(127) }
            }
            Ok(String::new())
        }
        _ => {
            // SAFETY: the slot stays open meanwhile.
            let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let end = || Stdio::from(borrowed.try_clone_to_owned().unwrap());
            // The process is waited for by `child`.
            let child = Command::new(program).stdin(end()).stdout(end()).spawn().unwrap();
            mem::forget(child);
            Ok(String::new())
        }
    }
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

fn posix_spawn(arguments: &[*mut c_char; 2], descriptor: RawFd) -> Reply {
    // SAFETY: zero is a valid value to initialise.
    let mut actions: libc::posix_spawn_file_actions_t = unsafe { mem::zeroed() };
    let pointer = &raw mut actions;
    call!(libc::posix_spawn_file_actions_init: pointer)?;
    call!(libc::posix_spawn_file_actions_adddup2: pointer, descriptor, 0)?;
    call!(libc::posix_spawn_file_actions_adddup2: pointer, descriptor, 1)?;
    // SAFETY: the environment of this process, which no thread changes.
    let environment = unsafe { environ };
    let mut child = 0;
    let program = arguments[0].cast_const();
    let pid = &raw mut child;
    let list = arguments.as_ptr();
    let error = call!(libc::posix_spawnp: pid, program, pointer, ptr::null(), list, environment)?;
    call!(libc::posix_spawn_file_actions_destroy: pointer)?;
    done(if error == 0 { Ok(0) } else { Err(Errno(error as c_int)) })
}
