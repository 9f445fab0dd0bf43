//! The processes at the other side of a pool: for a server the client, and for a client each process
//! that has the listener, by its slot.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use levada_ring::queue::SLOTS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::private;

/// A process at the other side.
pub struct Other {
    /// Its number with the monitor; 0 for none.
    number: AtomicU32,
    /// The other end of the line is closed in all processes.
    has_ended: AtomicBool,
    /// This process's end of the line: it shows when no process has the other end.
    line: AtomicI32,
}

impl Other {
    const fn new() -> Self {
        Self {
            number: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            line: AtomicI32::new(-1),
        }
    }

    /// Its number with the monitor.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::SeqCst)
    }

    /// Returns true if certainly no process has the other end of the line. Then it is closed.
    pub fn is_down(&self) -> bool {
        if self.is_hung_up() == Some(true) && !self.has_ended.swap(true, Ordering::SeqCst) {
            private::forget(&self.line);
        }
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns true if a process certainly has the other end of the line.
    pub fn is_up(&self) -> bool {
        self.is_hung_up() == Some(false)
    }

    fn is_hung_up(&self) -> Option<bool> {
        private::with(&self.line, is_hung_up).flatten()
    }
}

/// Returns true if no process has the other end of a line. `None` if that cannot be seen.
fn is_hung_up(line: BorrowedFd<'_>) -> Option<bool> {
    let mut entry = [PollFd::from_borrowed_fd(line, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut entry, Some(&now)) {
        Ok(_) => Some(entry[0].revents().contains(PollFlags::HUP)),
        // The kernel has looked, has found nothing, and a signal waits.
        Err(Errno::INTR) => Some(false),
        Err(_) => None,
    }
}

/// All of them.
pub struct Others {
    all: [Other; SLOTS],
    /// One more than the highest slot.
    count: AtomicUsize,
}

impl Others {
    pub const fn new() -> Self {
        Self { all: [const { Other::new() }; SLOTS], count: AtomicUsize::new(0) }
    }

    /// Adds a process with its slot, its number, and this process's end of the line. Returns false
    /// if there is no room for the descriptor.
    pub fn add(&'static self, slot: u8, number: u32, line: OwnedFd) -> bool {
        let Some(other) = self.all.get(usize::from(slot)) else { return false };
        if private::keep_in(&other.line, line).is_err() {
            return false;
        }
        other.has_ended.store(false, Ordering::SeqCst);
        other.number.store(number, Ordering::SeqCst);
        self.count.fetch_max(usize::from(slot) + 1, Ordering::SeqCst);
        true
    }

    /// The process in a slot.
    pub fn find(&self, slot: u8) -> Option<&Other> {
        self.all.get(usize::from(slot)).filter(|other| other.number() != 0)
    }

    /// All with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Other)> {
        let count = self.count.load(Ordering::SeqCst);
        (0..).zip(&self.all).take(count).filter(|(_, other)| other.number() != 0)
    }

    /// Closes all lines.
    pub fn clear(&self) {
        for other in &self.all[..self.count.swap(0, Ordering::SeqCst).min(SLOTS)] {
            other.number.store(0, Ordering::SeqCst);
            private::forget(&other.line);
        }
    }
}
