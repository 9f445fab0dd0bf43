//! A program in the foreground, which this command waits for.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Outcome};
use crate::output::plain;

/// A shell adds the signal's number to this exit code.
const SIGNALLED: i32 = 128;

/// Runs a program until it ends; returns its exit code.
///
/// It is in the process group of this command, so that Ctrl-C, Ctrl-\ and a closed terminal reach it without help. As a shell,
/// this command goes on after the first two. SIGTERM is passed on.
pub async fn run(command: Command) -> Outcome {
    let program = command.get_program().to_owned();
    // Before the signals are received here: the program has the dispositions that this command was started with.
    let spawned = tokio::process::Command::from(command).spawn();
    let mut child = spawned.map_err(|error| cannot_run(&program, &error))?;
    let receive = |kind| signal(kind).map_err(Failure::local);
    let mut interrupt = receive(SignalKind::interrupt())?;
    let mut quit = receive(SignalKind::quit())?;
    let mut terminate = receive(SignalKind::terminate())?;
    loop {
        tokio::select! {
            status = child.wait() => return status.map(exit_code).map_err(Failure::local),
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
            _ = terminate.recv() => {
                let process = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(process) = process {
                    // It may have ended already.
                    let _ = kill_process(process, Signal::TERM);
                }
            }
        }
    }
}

/// Why there is no program.
pub fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    Failure::local(format_args!("cannot run {}: {error}", plain(&program.to_string_lossy())))
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
