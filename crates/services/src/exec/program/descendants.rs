//! The descendants of this process, which is a child subreaper (PR_SET_CHILD_SUBREAPER(2const)): a
//! process whose parent has exited becomes its child, so that none escapes by a double fork or by
//! `setsid`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;

use rustix::fs::RawDir;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, wait,
};

/// The directory buffer, in bytes: room for one entry with the longest name, and so for few entries
/// of `/proc`. A short time between reading an entry and the kill matters for processes that fork
/// and exit continuously.
const ENTRIES: usize = 288;

/// Reaps the children that have ended: calls `ended` with the id of each and its exit code, or 128
/// and the number of the signal. Returns whether children are left.
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

/// Kills this process's children. Their children then become children of this process: repeated
/// until [`reap`] finds none, it kills all descendants.
pub(super) fn kill_children() {
    let own = own();
    each(|process| {
        // The id is the child's until it is reaped, which happens only in `reap`.
        if process.parent == own
            && let Some(id) = Pid::from_raw(process.id)
        {
            let _ = kill_process(id, Signal::KILL);
        }
    });
}

/// Sends `signals` to all descendants, except those that are forked meanwhile.
pub(super) fn signal_all(signals: &[Signal]) {
    let mut all = Vec::new();
    each(|process| all.push(process));
    let mut family = HashSet::from([own()]);
    // Children usually have higher ids than their parents, so that few rounds are needed.
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

/// Calls `visit` with each process in `/proc`, as soon as it is found.
fn each(mut visit: impl FnMut(Process)) {
    let Ok(folder) = File::open("/proc") else { return };
    let mut space = [MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(folder, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let id = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if let Some(process) = id.and_then(Process::read) {
            visit(process);
        }
    }
}

/// The line of `/proc/PID/stat`, see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// The start time in clock ticks since boot: distinguishes it from a later process with the
    /// same id.
    start: u64,
}

impl Process {
    fn read(id: i32) -> Option<Self> {
        Self::parse(id, &fs::read(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(id: i32, stat: &[u8]) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain parentheses and
        // any bytes.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { id, parent, start })
    }

    /// Sends it signals, unless it has ended and another process has its id.
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
    fn a_stat_line_is_parsed_with_any_program_name() {
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
