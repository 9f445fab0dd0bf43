//! The programs of a node: started so that they cannot outlive the lab, and killed with it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::LabError;

/// The time limit for a killed program to end.
const KILL_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Exits if the lab's process has already ended: the parent-death signal is not sent for a parent
/// that ended before it was requested.
const PARENT_CHECK: &str = r#"[ "$PPID" = "$0" ] || exit 125; exec "$@""#;

/// Process 1 of the PID namespace: a shell that waits for the program. If the program were process
/// 1, the kernel would ignore signals that it does not handle.
const INIT: &str = r#""$@"; exit $?"#;

/// `program` wrapped so that it dies with the thread that starts it: `setpriv` sets the
/// parent-death signal, and `unshare --kill-child` extends it to all descendants.
pub(super) fn wrapped(program: &OsStr) -> Command {
    let lab = std::process::id().to_string();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", PARENT_CHECK, &lab]);
    command.args(["unshare", "--pid", "--fork", "--kill-child", "--", "sh", "-c", INIT, "sh"]);
    command.arg(program);
    command
}

/// The started programs; some may have ended.
#[derive(Default)]
pub(super) struct Children {
    started: Vec<(Pid, OwnedFd)>,
}

impl Children {
    /// Starts a command of [`wrapped`]. The program is killed when the calling thread ends.
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

    /// Kills all programs, and waits until they have ended. Their exit codes can still be read from
    /// the [`Child`].
    pub(super) fn end(&mut self) {
        for (pid, wrapper) in self.started.drain(..).filter(|(_, process)| !has_ended(process)) {
            // A stopped wrapper can neither start the program nor report that it was killed.
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

/// Process 1 of the PID namespace, if it exists yet: when it ends, all processes in the namespace
/// end.
fn first_inside(wrapper: Pid) -> Option<OwnedFd> {
    let number = wrapper.as_raw_nonzero();
    let children =
        std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).ok()?;
    let first = Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)?;
    pidfd_open(first, PidfdFlags::empty()).ok()
}

/// Waits until the process has ended, for [`KILL_TIMEOUT`] at most.
fn wait(process: &OwnedFd) {
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&KILL_TIMEOUT));
}

/// Whether the process has ended, reaped or not.
fn has_ended(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None))
}
