//! A program in the foreground, which this command waits for.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus, id};
use std::thread;

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use signal_hook::consts::signal::{SIGTSTP, SIGTTIN, SIGTTOU};
use signal_hook::consts::{FORBIDDEN, SIGCHLD};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use super::launch::PRELOAD_VARIABLE;
use crate::failure::{Failure, Outcome};
use crate::output::{self, plain};

/// The first word of a command line that starts a program for another process.
pub const ARGUMENT: &str = "fast-child";
/// The libraries for the program: this binary needs none of them.
const LATER_VARIABLE: &str = "LEVADA_FAST_PRELOAD";

/// A shell adds the signal's number to this exit code.
const SIGNALLED: i32 = 128;
/// The numbers of signals are less than this.
const END_OF_SIGNALS: i32 = 65;
/// The C library has these for itself.
const RESERVED: [i32; 2] = [32, 33];

/// Runs a program until it ends; returns its exit code.
///
/// The program ends with this command. Signals that another process sends to this command are
/// passed on. Those of the terminal reach the program without help: it is in the same process
/// group.
///
/// The caller is in the main thread: the kernel ends the program when the *thread* ends that has
/// started it.
pub async fn run(command: &Command) -> Outcome {
    let mut starter =
        tokio::process::Command::new(std::env::current_exe().map_err(Failure::local)?);
    starter.arg(ARGUMENT).arg(id().to_string()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        let name = if name == PRELOAD_VARIABLE { OsStr::new(LATER_VARIABLE) } else { name };
        match value {
            Some(value) => starter.env(name, value),
            None => starter.env_remove(name),
        };
    }
    // Before the signals are received here: the program has the dispositions that this command was
    // started with.
    let mut child = starter.spawn().map_err(|error| cannot_run(command.get_program(), &error))?;
    let process = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let signals = (1..END_OF_SIGNALS).filter(|signal| {
        *signal != SIGCHLD && !FORBIDDEN.contains(signal) && !RESERVED.contains(signal)
    });
    let signals = SignalsInfo::<WithOrigin>::new(signals).map_err(Failure::local)?;
    let handle = signals.handle();
    let passing = thread::spawn(move || pass_on(signals, process));
    let status = child.wait().await;
    handle.close();
    let _ = passing.join();
    status.map(exit_code).map_err(Failure::local)
}

/// Passes signals on to the program until the handle is closed.
fn pass_on(mut signals: SignalsInfo<WithOrigin>, program: Option<Pid>) {
    for origin in signals.forever() {
        let signal = origin.signal;
        let is_sent = matches!(origin.cause, Cause::Sent(_));
        if let (true, Some(program)) = (is_sent, program) {
            // By its number, which may be that of a real-time signal. The program may have ended
            // already.
            let _ = uapi::kill(program.as_raw_nonzero().get(), signal);
        }
        if [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            // As by default, which the handler has replaced: the shell sees that this job has
            // stopped.
            let _ = Pid::from_raw(id().cast_signed()).map(|own| kill_process(own, Signal::STOP));
        }
    }
}

/// Becomes a program that ends when its parent does: `words` are the number of the parent, the
/// program, and its arguments.
pub fn become_program(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|word| word.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let Some(program) = words.next() else { return crate::failure::USAGE.into() };
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = bound {
        return output::report(&cannot_run(&program, &error.into()));
    }
    if parent.is_none() || getppid() != parent {
        // It has ended before.
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(&program);
    command.args(words).env_remove(LATER_VARIABLE);
    if let Some(preload) = std::env::var_os(LATER_VARIABLE) {
        command.env(PRELOAD_VARIABLE, preload);
    }
    let error = command.exec();
    output::report(&cannot_run(&program, &error))
}

/// Why there is no program.
pub fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    Failure::local(format_args!("cannot run {}: {error}", plain(&program.to_string_lossy())))
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
