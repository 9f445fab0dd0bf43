//! The processes that a program has started, as far as the kernel still knows them.
//!
//! A process group is not enough: a shell on a terminal puts each of its jobs into a group of its own.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::time::sleep;

use super::GRACE;

/// Who belongs to a program, besides those that descend from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Its process group.
    Group,
    /// Its process group and its session: it leads one, on a terminal of its own.
    Session,
}

/// One process, which stays the same even when its number is given to another.
pub(super) struct Member {
    process: Process,
    fd: OwnedFd,
    /// When it was found it was not in the program's process group: signals to that do not reach it.
    outside: bool,
}

impl Member {
    /// Everybody but `leader` who belongs to it, or descends from `known`: its process group, too, because who is
    /// in that today may leave it, and its parent die, before the next look. Empty where there is no `/proc`.
    pub(super) fn find(leader: Pid, scope: Scope, known: &[Self]) -> Vec<Self> {
        let leader = leader.as_raw_pid();
        let all = snapshot();
        let still_there =
            all.iter().filter(|process| known.iter().any(|one| one.process == **process));
        let mut family: HashSet<i32> = still_there.map(|process| process.id).collect();
        family.insert(leader);
        // Children are usually younger than their parents, so that few rounds are needed.
        loop {
            let size = family.len();
            for process in &all {
                let belongs = process.group == leader
                    || family.contains(&process.parent)
                    || (scope == Scope::Session && process.session == leader);
                if belongs {
                    family.insert(process.id);
                }
            }
            if family.len() == size {
                break;
            }
        }
        let found = |process: &Process| process.id != leader && family.contains(&process.id);
        let hold = |process: Process| process.hold(leader);
        all.into_iter().filter(found).filter_map(hold).collect()
    }

    /// Sends a signal to one who is outside the group; nothing happens if the process has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if self.outside {
            let _ = pidfd_send_signal(&self.fd, signal);
        }
    }
}

/// What the leader of a process group is recognised by, even by another process, and later: its number,
/// when it started, and in which life of the machine. As text: the three with spaces between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    id: i32,
    start: u64,
    boot: String,
}

impl Mark {
    pub(super) fn of(id: Pid) -> Option<Self> {
        let id = id.as_raw_pid();
        Some(Self { id, start: Process::read(id)?.start, boot: boot() })
    }

    /// Whether that very process is still there.
    pub fn is_there(&self) -> bool {
        self.boot == boot()
            && Process::read(self.id).is_some_and(|process| process.start == self.start)
    }

    fn signal(&self, signal: Signal) {
        if self.is_there()
            && let Some(id) = Pid::from_raw(self.id)
        {
            let _ = kill_process_group(id, signal);
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, self.start, self.boot)
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let (Some(id), Some(start), Some(boot), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        let id: i32 = id.parse().map_err(|_| ())?;
        // 0 and negative numbers would be other groups.
        if id <= 1 {
            return Err(());
        }
        Ok(Self { id, start: start.parse().map_err(|_| ())?, boot: boot.to_owned() })
    }
}

/// Ends the groups of those that are still there: SIGHUP at once, SIGKILL soon after.
pub async fn end_marked(marks: &[Mark]) {
    for signal in [Signal::HUP, Signal::CONT] {
        marks.iter().for_each(|mark| mark.signal(signal));
    }
    sleep(GRACE).await;
    marks.iter().for_each(|mark| mark.signal(Signal::KILL));
}

/// Differs from one start of the machine to the next.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// A line of `/proc/PID/stat`, see proc_pid_stat(5).
#[derive(Debug)]
struct Process {
    id: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// When it started: tells it from another one that was given its number later.
    start: u64,
}

/// Parent, group and session may change; number and start together do not.
impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.start) == (other.id, other.start)
    }
}

impl Process {
    fn read(id: i32) -> Option<Self> {
        Self::parse(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn parse(id: i32, stat: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, and may itself contain them.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(1);
        let mut number = || fields.next()?.parse::<i32>().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self { id, parent, group, session, start })
    }

    fn hold(self, leader: i32) -> Option<Member> {
        let fd = pidfd_open(Pid::from_raw(self.id)?, PidfdFlags::empty()).ok()?;
        let outside = self.group != leader;
        (Self::read(self.id)? == self).then_some(Member { process: self, fd, outside })
    }
}

fn snapshot() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Process::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_program_is_called() {
        let stat = "42 (a) S 1 (b) R 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
        let process = Process::parse(42, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session, process.start), (7, 8, 9, 987));
        for wrong in ["", "42", "42 (a", "42 (a) R", "42 (a) R 1 2 3", "42 (a) R x 2 3"] {
            assert_eq!(Process::parse(42, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_mark_fits_one_process_of_one_life_of_the_machine() {
        let own = Pid::from_raw(std::process::id().cast_signed()).unwrap();
        let mark = Mark::of(own).unwrap();
        assert!(mark.is_there());
        assert_eq!(mark.to_string().parse(), Ok(mark.clone()));
        let others = [
            Mark { start: mark.start + 1, ..mark.clone() },
            Mark { boot: "another".into(), ..mark.clone() },
        ];
        assert!(others.iter().all(|other| !other.is_there()));
        for wrong in ["", "1 2 a", "-7 2 a", "0 2 a", "7 x a", "7 2", "7 2 a b"] {
            assert_eq!(wrong.parse::<Mark>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id().cast_signed();
        assert!(snapshot().iter().any(|process| process.id == own));
        assert!(Process::read(own).unwrap().hold(own).is_some());
    }
}
