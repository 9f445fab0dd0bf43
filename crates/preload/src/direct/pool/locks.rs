//! Locks of the kernel by which the processes that share connections after a fork show that they
//! live.
//!
//! The line of a pair shows the end of the last process only that has its end. So a process that
//! forks locks a byte of the pool's file for each of its connections, over a file description of
//! its own (F_OFD_SETLK, fcntl(2)), and over another one for its child. The kernel removes the locks
//! of a process that ends, however it ends.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use levada_ring::{SEGMENTS, Side};
use libc::{c_int, c_short};
use rustix::fs::{Mode, OFlags};

use super::Pair;
use super::bits::Bits;
use crate::{private, real};

/// The file descriptions of a pool's file, and what is locked by them.
pub struct Locks {
    /// For this process, and during a fork for its child.
    files: [AtomicI32; 2],
    /// The one of this process.
    own: AtomicUsize,
    /// The segments whose bytes this process has locked.
    locked: Bits,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            files: [const { AtomicI32::new(-1) }; 2],
            own: AtomicUsize::new(0),
            locked: Bits::new(),
        }
    }
}

impl Locks {
    /// Opens the file of a pool. Without room for the descriptor, a fork cannot show which of its
    /// processes live.
    pub fn open(&'static self, file: BorrowedFd<'_>) {
        self.locked.clear();
        let _ = reopen(file).map(|file| private::keep_in(self.file(), file));
    }

    /// Closes the file.
    pub fn close(&self) {
        self.files.iter().for_each(private::forget);
    }

    fn file(&self) -> &AtomicI32 {
        &self.files[self.own.load(Ordering::SeqCst) % 2]
    }

    fn file_of_child(&self) -> &AtomicI32 {
        &self.files[(self.own.load(Ordering::SeqCst) + 1) % 2]
    }
}

impl Pair {
    /// A fork follows, whose child inherits these connections: shows for each that this process
    /// lives, and that its child will. If it cannot, the line alone shows the end of this side.
    pub fn before_fork(&'static self, numbers: &[u8]) {
        if numbers.is_empty() {
            return;
        }
        let locks = &self.locks;
        let child = private::with(locks.file(), reopen).flatten();
        let has_room =
            child.is_some_and(|child| private::keep_in(locks.file_of_child(), child).is_ok());
        for number in numbers {
            let is_shown = has_room && self.lock(*number) && self.lock_for_child(*number);
            self.segment(*number).ends().set_shared(self.side(), is_shown);
        }
        self.queue().note_fork(self.side());
    }

    fn lock(&self, number: u8) -> bool {
        let is_locked = self.locks.locked.has(number)
            || set(self.locks.file(), libc::F_RDLCK, (self.side(), number));
        self.locks.locked.set(number, is_locked);
        is_locked
    }

    fn lock_for_child(&self, number: u8) -> bool {
        set(self.locks.file_of_child(), libc::F_RDLCK, (self.side(), number))
    }

    /// In the parent.
    pub fn in_parent(&self) {
        private::forget(self.locks.file_of_child());
    }

    /// In the child, which has inherited these connections.
    pub fn lock_in_child(&self, numbers: &[u8]) {
        private::forget(self.locks.file());
        self.locks.own.fetch_xor(1, Ordering::SeqCst);
        self.locks.locked.clear();
        numbers.iter().for_each(|number| self.locks.locked.set(*number, true));
    }

    /// This process has a connection no longer.
    pub fn unlock(&self, number: u8) {
        if self.locks.locked.has(number) {
            self.locks.locked.set(number, false);
            set(self.locks.file(), libc::F_UNLCK, (self.side(), number));
        }
    }

    /// Returns true if certainly no other process still has a side of the connection, although some
    /// have its end of the line.
    pub fn is_left(&self, side: Side, number: u8) -> bool {
        let is_unlocked = |file: BorrowedFd<'_>| is_unlocked(file, side, number);
        self.segment(number).ends().is_shared(side)
            && private::with(self.locks.file(), is_unlocked) == Some(true)
    }
}

/// Locks the byte of a side and segment, or unlocks it. Returns true if it has done so.
fn set(file: &AtomicI32, kind: c_int, (side, number): (Side, u8)) -> bool {
    let mut lock = lock_of(kind, side, number);
    private::with(file, |file| call(file, libc::F_OFD_SETLK, &mut lock)) == Some(true)
}

fn lock_of(kind: c_int, side: Side, number: u8) -> libc::flock {
    let of_side = if side == Side::Acceptor { SEGMENTS } else { 0 };
    // SAFETY: zero is a valid value of this structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = (of_side + usize::from(number) % SEGMENTS) as libc::off_t;
    lock.l_len = 1;
    lock
}

/// Returns true if no other file description has a lock of this byte.
fn is_unlocked(file: BorrowedFd<'_>, side: Side, number: u8) -> bool {
    let mut lock = lock_of(libc::F_WRLCK, side, number);
    call(file, libc::F_OFD_GETLK, &mut lock) && lock.l_type == libc::F_UNLCK as c_short
}

fn call(file: BorrowedFd<'_>, command: c_int, lock: &mut libc::flock) -> bool {
    // SAFETY: the commands read and write the structure.
    unsafe { real::fcntl64(file.as_raw_fd(), command, (&raw mut *lock) as libc::c_long) == 0 }
}

/// Another file description of a file.
fn reopen(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}
