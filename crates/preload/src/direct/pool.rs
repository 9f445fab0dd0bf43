//! The pool of segments that this process shares with another one.

mod locks;
mod segments;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use levada_ring::ends::End;
use levada_ring::queue::{Queue, Waiting};
use levada_ring::{Leaked, Pool, SEGMENTS, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pairs;
use crate::lock::Guarded;
use crate::{private, process};

use locks::Locks;
pub use segments::Made;
use segments::Segments;

/// The connections of a client and a process that listens. It is never freed: when it is unmapped,
/// it becomes that of other processes.
pub struct Pair {
    /// The number that the monitor has given to the other process.
    peer: AtomicU32,
    /// True if this process listens.
    is_acceptor: AtomicBool,
    /// The first of the client's ports, one for each segment.
    first_port: AtomicU16,
    pool: Pool,
    /// This process's end of the line: it shows when no process has the other end.
    line: AtomicI32,
    locks: Locks,
    is_dead: AtomicBool,
    /// A fork has given it to this process, which makes and takes no connections in it.
    is_inherited: AtomicBool,
    /// Connections of this process in it.
    users: AtomicU32,
    is_unmapped: AtomicBool,
    /// A bit for each segment whose connection this process has taken, and not let go of.
    taken: [AtomicU64; SEGMENTS / 64],
    segments: Guarded<Segments>,
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

impl Pair {
    /// Maps a pool, for `free` if there is one. `None` without memory.
    pub fn open(
        (peer, side): (u32, Side),
        first_port: u16,
        file: impl AsFd,
        free: Option<&'static Self>,
    ) -> Option<&'static Self> {
        let pool = Pool::open(file).ok()?;
        if let Some(pair) = free {
            pair.begin_again((peer, side), first_port, pool);
            return Some(pair);
        }
        Some(Box::leak(Box::new(Self {
            peer: AtomicU32::new(peer),
            is_acceptor: AtomicBool::new(side == Side::Acceptor),
            first_port: AtomicU16::new(first_port),
            pool,
            line: AtomicI32::new(-1),
            locks: Locks::default(),
            is_dead: AtomicBool::new(false),
            is_inherited: AtomicBool::new(false),
            users: AtomicU32::new(0),
            is_unmapped: AtomicBool::new(false),
            taken: [const { AtomicU64::new(0) }; SEGMENTS / 64],
            segments: Guarded::new(Segments::new(side)),
        })))
    }

    /// Becomes the pair of other processes, after [`retire`](Self::retire). A thread that has found
    /// it before enters it no more: it is noted as unmapped, and then as that of another process.
    fn begin_again(&self, (peer, side): (u32, Side), first_port: u16, pool: Pool) {
        self.peer.store(peer, Ordering::SeqCst);
        self.is_acceptor.store(side == Side::Acceptor, Ordering::SeqCst);
        self.first_port.store(first_port, Ordering::SeqCst);
        self.pool.replace(pool);
        self.taken.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        self.segments.with(|segments| *segments = Segments::new(side));
        self.is_dead.store(false, Ordering::SeqCst);
        self.is_inherited.store(false, Ordering::SeqCst);
        self.is_unmapped.store(false, Ordering::SeqCst);
    }

    /// The number that the monitor has given to the other process.
    pub fn peer(&self) -> u32 {
        self.peer.load(Ordering::SeqCst)
    }

    /// This process's side of the connections.
    pub fn side(&self) -> Side {
        match self.is_acceptor.load(Ordering::SeqCst) {
            true => Side::Acceptor,
            false => Side::Connector,
        }
    }

    /// Keeps the end of the line, and opens the file. `false` if there is no room for the end.
    /// Without the file, a fork cannot show which of its processes live.
    pub fn keep(&'static self, file: BorrowedFd<'_>, line: OwnedFd) -> bool {
        self.locks.open(file);
        private::keep_in(&self.line, line).is_ok()
    }

    /// Unmaps a pool that no thread has found. Returns true if the pair is free.
    pub fn give_up(&self) -> bool {
        self.is_dead.store(true, Ordering::SeqCst);
        self.retire(|| false)
    }

    /// The connections that wait. The caller knows that the pool is mapped.
    pub fn queue(&self) -> &Queue {
        self.pool.queue()
    }

    /// Returns true if this process takes connections in it.
    pub fn is_of_server(&self) -> bool {
        self.side() == Side::Acceptor && !self.is_inherited.load(Ordering::Relaxed)
    }

    /// The client's port of a connection.
    pub fn port(&self, number: u8) -> u16 {
        let port = self.segment(number).ends().port() % SEGMENTS as u8;
        self.first_port.load(Ordering::Relaxed).wrapping_add(port.into())
    }

    /// Returns true once no process has the other end of the line.
    pub fn is_down(&self) -> bool {
        if self.is_dead.load(Ordering::SeqCst) {
            return true;
        }
        let is_down = private::with(&self.line, is_hung_up).flatten() == Some(true);
        if is_down {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        is_down
    }

    /// Returns true if several processes of the other side have, or had, some of its connections.
    pub fn has_forked_peer(&self) -> bool {
        self.queue().has_forked(self.peer_side())
    }

    /// The other side of the connections.
    pub fn peer_side(&self) -> Side {
        match self.side() {
            Side::Connector => Side::Acceptor,
            Side::Acceptor => Side::Connector,
        }
    }

    /// Returns true if a process certainly has the other end of the line.
    fn is_up(&self) -> bool {
        private::with(&self.line, is_hung_up).flatten() == Some(false)
    }

    /// A segment. The caller has a connection in it.
    pub fn segment(&self, number: u8) -> Leaked {
        self.pool.segment(number)
    }

    /// One more connection of this process is in the pool. `false` if it is, or may soon be,
    /// unmapped.
    fn enter(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        // What a dead client has sent, a server still reads.
        let is_over = self.side() == Side::Connector && self.is_dead.load(Ordering::SeqCst)
            || self.is_inherited.load(Ordering::SeqCst)
            || self.is_unmapped.load(Ordering::SeqCst);
        if is_over {
            self.leave();
        }
        !is_over
    }

    /// Takes the connection that has waited longest for a listener of this process, and enters the
    /// pool. Its segment, and its generation.
    pub fn take(&self, name: u32) -> Option<(u8, u64)> {
        for _ in 0..SEGMENTS {
            let waiting = self.first(name)?;
            if !self.queue().take(waiting) {
                continue;
            }
            let number = waiting.segment;
            let (word, bit) = self.taken_bits(number);
            word.fetch_or(bit, Ordering::AcqRel);
            let is_entered = self.enter();
            return is_entered.then(|| (number, self.segment(number).ends().generation()));
        }
        None
    }

    /// Returns true if a connection waits for a listener of this process.
    pub fn has_waiting(&self, name: u32) -> bool {
        self.is_of_server() && self.first(name).is_some()
    }

    /// A segment that this process uses has no connection that waits, whatever the client writes.
    fn first(&self, name: u32) -> Option<Waiting> {
        self.queue().first(name, |number| {
            let (word, bit) = self.taken_bits(number);
            word.load(Ordering::Acquire) & bit == 0
        })
    }

    fn taken_bits(&self, number: u8) -> (&AtomicU64, u64) {
        let number = usize::from(number) % SEGMENTS;
        (&self.taken[number / 64], 1 << (number % 64))
    }

    /// Resets a connection that this process has taken, and no descriptor is for. Returns how the
    /// client is to be woken.
    pub fn reset(&self, number: u8, generation: u64) -> [Option<levada_ring::Waiter>; 2] {
        let segment = self.segment(number);
        segment.ends().end(Side::Acceptor, End::Reset);
        let waiters = segment.end_all(Side::Acceptor);
        self.end(number, generation, true);
        waiters
    }

    /// No thread of this process uses the segment of a connection any more. With `is_last`, no
    /// other process has this side of it either.
    pub fn end(&self, number: u8, generation: u64, is_last: bool) {
        // Before the client can use the segment again.
        let (word, bit) = self.taken_bits(number);
        word.fetch_and(!bit, Ordering::AcqRel);
        if is_last {
            self.acknowledge(number, generation);
        }
        self.unlock(number);
        if self.side() == Side::Connector && !self.is_inherited.load(Ordering::Relaxed) {
            self.segments.with(|segments| segments.closed(number));
        }
        self.leave();
    }

    /// No process has this side of a connection any longer.
    pub fn acknowledge(&self, number: u8, generation: u64) {
        self.pool.segment(number).ends().acknowledge(self.side(), generation);
    }

    /// Takes [`enter`](Self::enter) back.
    fn leave(&self) {
        let is_last = self.users.fetch_sub(1, Ordering::SeqCst) == 1;
        let is_over = || [&self.is_dead, &self.is_inherited].map(|one| one.load(Ordering::SeqCst));
        if is_last && is_over().contains(&true) {
            pairs::retire();
        }
    }

    /// In the child of a fork, which has these connections in it.
    pub fn inherit(&'static self, numbers: &[u8]) {
        self.is_inherited.store(true, Ordering::SeqCst);
        self.users.store(numbers.len() as u32, Ordering::SeqCst);
        self.lock_in_child(numbers);
    }

    /// Unmaps the pool, and gives up the line, if no connection of this process is in it and none
    /// can be: the other process has ended and, at this side, none [waits](Self::has_waiting); or
    /// the pair is inherited. Returns true if it has done so.
    pub fn retire(&self, has_waiting: impl FnOnce() -> bool) -> bool {
        let is_inherited = self.is_inherited.load(Ordering::SeqCst);
        let is_over = is_inherited || self.is_down();
        // The child of a vfork(2) has the memory of its parent.
        let is_unused = self.users.load(Ordering::SeqCst) == 0 && process::owns_tables();
        if !is_over || !is_unused || has_waiting() {
            return false;
        }
        self.is_unmapped.store(true, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) != 0 {
            // A connection begins just now, and finds that it may not.
            self.is_unmapped.store(false, Ordering::SeqCst);
            return false;
        }
        private::forget(&self.line);
        self.locks.close();
        if !is_inherited {
            self.segments.with(Segments::give_back);
        }
        // SAFETY: no connection of this process is in the pool, and none begins: each thread looks
        // at `is_unmapped` after it has become a user, or finds the pair under the lock of all.
        unsafe { self.pool.unmap() };
        true
    }
}
