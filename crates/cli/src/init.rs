//! Runs as the first process of a container (PID 1): the verb runs in a child, and this process has
//! the duties of init: it forwards signals and reaps orphaned processes.

use std::io;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};

/// Whether this process is the first one.
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Runs this command line in a child until it ends; returns its exit code.
pub fn run() -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise())
}

async fn supervise() -> io::Result<ExitCode> {
    let mut children = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut reload = signal(SignalKind::hangup())?;
    let verb = Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).spawn()?;
    let verb = i32::try_from(verb.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::Other)?;
    loop {
        let forwarded = tokio::select! {
            _ = children.recv() => None,
            _ = terminate.recv() => Some(Signal::TERM),
            _ = interrupt.recv() => Some(Signal::INT),
            _ = quit.recv() => Some(Signal::QUIT),
            _ = reload.recv() => Some(Signal::HUP),
        };
        if let Some(signal) = forwarded {
            // The child may have ended already; the loop below finds out.
            let _ = kill_process(verb, signal);
        }
        while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
            if process == verb {
                return Ok(exit_code(status));
            }
        }
    }
}

fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
