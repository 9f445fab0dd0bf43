//! The processes that descend from this one. It is a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): a process
//! whose parent is gone becomes its child, so that none is lost by a double fork or by `setsid`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;

use rustix::fs::RawDir;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, wait,
};

/// Room for one entry of a folder with the longest name, in bytes, and for few entries of `/proc`: between the look
/// at an entry and the kill a process that forks and exits all the time must not get far.
const ENTRIES: usize = 288;

/// Takes away the children that have ended: calls `ended` with the number of each and its exit code, or 128 and the
/// number of the signal. Gives whether children are left.
pub(super) fn reap(mut ended: impl FnMut(Pid, u8)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((id, status))) => {
                let signal = status.terminating_signal().map(|number| 128 + number);
                let code = signal.or(status.exit_status()).unwrap_or(128);
                // An exit code has eight bits.
                ended(id, code.to_le_bytes()[0]);
            }
            Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills this process's children. Their own children become ours then: called until [`reap`] finds none, it kills
/// every descendant.
pub(super) fn kill_children() {
    let own = own();
    each(|process| {
        // The number is the child's until it is reaped, which happens nowhere else.
        if process.parent == own
            && let Some(id) = Pid::from_raw(process.id)
        {
            let _ = kill_process(id, Signal::KILL);
        }
    });
}

/// Sends `signals` to every descendant that is found: to those that are forked meanwhile, not.
pub(super) fn signal_all(signals: &[Signal]) {
    let mut all = Vec::new();
    each(|process| all.push(process));
    let mut family = HashSet::from([own()]);
    // Children are usually younger than their parents, so that few rounds are needed.
    loop {
        let size = family.len();
        let born = all.iter().filter(|process| family.contains(&process.parent));
        let born: Vec<i32> = born.map(|process| process.id).collect();
        family.extend(born);
        if family.len() == size {
            break;
        }
    }
    let own = own();
    for process in all.iter().filter(|one| one.id != own && family.contains(&one.id)) {
        process.signal(signals);
    }
}

fn own() -> i32 {
    std::process::id().cast_signed()
}

/// Calls `see` with every process that `/proc` shows, as soon as it is found.
fn each(mut see: impl FnMut(Process)) {
    let Ok(folder) = File::open("/proc") else { return };
    let mut space = [MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(folder, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let id = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if let Some(process) = id.and_then(Process::read) {
            see(process);
        }
    }
}

/// A line of `/proc/PID/stat`, see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// When it started: tells it from another one that was given its number later.
    start: u64,
}

impl Process {
    fn read(id: i32) -> Option<Self> {
        Self::parse(id, &fs::read(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(id: i32, stat: &[u8]) -> Option<Self> {
        // The second field is the program's name in parentheses, and may itself contain them, and any bytes.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { id, parent, start })
    }

    /// Sends it signals, unless it has ended and its number was given to another one.
    fn signal(&self, signals: &[Signal]) {
        let Some(id) = Pid::from_raw(self.id) else { return };
        let Ok(fd) = pidfd_open(id, PidfdFlags::empty()) else { return };
        if Self::read(self.id).is_some_and(|now| now.start == self.start) {
            for signal in signals {
                let _ = pidfd_send_signal(&fd, *signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_program_is_called() {
        let stat = b"42 (a) S 1 (\xff) R 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
        let process = Process::parse(42, stat).unwrap();
        assert_eq!(process, Process { id: 42, parent: 7, start: 987 });
        for wrong in ["", "42", "42 (a", "42 (a) R", "42 (a) R 1 2 3", "42 (a) R x 2 3"] {
            assert_eq!(Process::parse(42, wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_is_found() {
        let mut found = false;
        each(|process| found |= process.id == own());
        assert!(found);
    }
}
