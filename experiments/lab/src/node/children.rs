//! The programs of one node: how they are started so that nothing can make them outlive the lab, and how they end.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::LabError;

/// How long a killed program may take to disappear.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// What the wrapper does first: it was told to die with the thread that started it, but that may have been too late.
const STILL_WANTED: &str = r#"[ "$PPID" = "$0" ] || exit 125; exec "$@""#;

/// What is process 1 of the process namespace: a shell that waits. Were it the program itself, signals that it does not
/// handle would do nothing.
const FIRST: &str = r#""$@"; exit $?"#;

/// `program` under what makes it die with the thread that starts it: `setpriv` asks the kernel for that, and
/// `unshare` extends it to whatever the program starts.
pub(super) fn wrapped(program: &OsStr) -> Command {
    let lab = std::process::id().to_string();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", STILL_WANTED, &lab]);
    command.args(["unshare", "--pid", "--fork", "--kill-child", "--", "sh", "-c", FIRST, "sh"]);
    command.arg(program);
    command
}

/// The programs that were started, and may have ended.
#[derive(Default)]
pub(super) struct Children {
    started: Vec<(Pid, OwnedFd)>,
}

impl Children {
    /// Starts a command of [`wrapped`]. On the thread that calls this the program's life depends.
    pub(super) fn spawn(&mut self, mut command: Command) -> Result<Child, LabError> {
        self.started.retain(|(_, process)| !has_ended(process));
        let what =
            format!("start {command:?} (setpriv and unshare are in the Debian package util-linux)");
        let mut child = command.spawn().map_err(LabError::system(what))?;
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => self.started.push((pid, process)),
            Err(error) => {
                let _ = child.kill();
                return Err(LabError::system("watch a program")(error));
            }
        }
        Ok(child)
    }

    /// Kills all, and waits until they are gone. Does not take their exit codes away from whoever holds the [`Child`].
    pub(super) fn end(&mut self) {
        for (pid, wrapper) in self.started.drain(..).filter(|(_, process)| !has_ended(process)) {
            // Stopped, it can neither start the program yet nor complain that it was killed.
            let _ = pidfd_send_signal(&wrapper, Signal::STOP);
            if let Some(first) = first_inside(pid) {
                let _ = pidfd_send_signal(&first, Signal::KILL);
                wait(&first);
            }
            let _ = pidfd_send_signal(&wrapper, Signal::KILL);
            wait(&wrapper);
        }
    }
}

/// Process 1 of the process namespace, if it exists yet: when it has ended, all in there have.
fn first_inside(wrapper: Pid) -> Option<OwnedFd> {
    let number = wrapper.as_raw_nonzero();
    let children =
        std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).ok()?;
    let first = Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)?;
    pidfd_open(first, PidfdFlags::empty()).ok()
}

/// Waits, though not for ever, until the process has ended.
fn wait(process: &OwnedFd) {
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&PATIENCE));
}

/// Whether it ended, with its exit code taken or not.
fn has_ended(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None))
}
