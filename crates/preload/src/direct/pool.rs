//! The pool of segments that a client shares with the processes that have a listener.

mod bits;
mod locks;
mod others;
mod segments;
mod server;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use levada_ring::ends::End;
use levada_ring::queue::Queue;
use levada_ring::{Leaked, Pool, SEGMENTS, Side};

use super::pairs;
use crate::lock::Guarded;
use crate::process;

use bits::Bits;
use locks::Locks;
use others::{Other, Others};
pub use segments::Made;
use segments::Segments;

/// The connections of a client to a listener. It is never freed: when it is unmapped, it becomes the
/// pair of others.
pub struct Pair {
    /// See [`Role`].
    listener: AtomicU32,
    slot: AtomicU32,
    is_acceptor: AtomicBool,
    /// The first of the client's ports, one for each segment.
    first_port: AtomicU16,
    pool: Pool,
    others: Others,
    locks: Locks,
    is_dead: AtomicBool,
    /// At the client: a process has had the listener open.
    was_open: AtomicBool,
    /// At a server: this process has closed the listener.
    has_closed: AtomicBool,
    /// A fork has given it to this process, which makes and takes no connections in it.
    is_inherited: AtomicBool,
    /// Connections of this process in it.
    users: AtomicU32,
    is_unmapped: AtomicBool,
    /// The segments whose connections this process has taken, and not let go of.
    taken: Bits,
    /// The connections that the client had made when none waited: only a further one can wait.
    settled: AtomicU64,
    segments: Guarded<Segments>,
}

/// The part of this process in a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The client of a listener, which has this number with the monitor.
    Client(u32),
    /// A process that has the listener, by this name, and the slot.
    Server(u32, u8),
}

impl Pair {
    /// Maps a pool, for `free` if there is one. `None` without memory.
    pub fn open(
        role: Role,
        first_port: u16,
        file: impl AsFd,
        free: Option<&'static Self>,
    ) -> Option<&'static Self> {
        let pool = Pool::open(file).ok()?;
        if let Some(pair) = free {
            pair.begin_again(role, first_port, pool);
            return Some(pair);
        }
        let side = if matches!(role, Role::Client(_)) { Side::Connector } else { Side::Acceptor };
        let pair: &Self = Box::leak(Box::new(Self {
            listener: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            is_acceptor: AtomicBool::new(false),
            first_port: AtomicU16::new(first_port),
            pool,
            others: Others::new(),
            locks: Locks::default(),
            is_dead: AtomicBool::new(false),
            was_open: AtomicBool::new(false),
            has_closed: AtomicBool::new(false),
            is_inherited: AtomicBool::new(false),
            users: AtomicU32::new(0),
            is_unmapped: AtomicBool::new(false),
            taken: Bits::new(),
            settled: AtomicU64::new(0),
            segments: Guarded::new(Segments::new(side)),
        }));
        pair.set_role(role);
        Some(pair)
    }

    fn set_role(&self, role: Role) {
        let (listener, slot) = match role {
            Role::Client(listener) => (listener, 0),
            Role::Server(name, slot) => (name, slot),
        };
        self.listener.store(listener, Ordering::SeqCst);
        self.slot.store(slot.into(), Ordering::SeqCst);
        self.is_acceptor.store(matches!(role, Role::Server(..)), Ordering::SeqCst);
    }

    /// Becomes the pair of others, after [`retire`](Self::retire). A thread that has found it before
    /// does not enter it: it is noted as unmapped, and then for another listener.
    fn begin_again(&self, role: Role, first_port: u16, pool: Pool) {
        self.set_role(role);
        self.first_port.store(first_port, Ordering::SeqCst);
        self.pool.replace(pool);
        self.taken.clear();
        self.settled.store(0, Ordering::SeqCst);
        self.segments.with(|segments| *segments = Segments::new(self.side()));
        for flag in [&self.is_dead, &self.was_open, &self.has_closed, &self.is_inherited] {
            flag.store(false, Ordering::SeqCst);
        }
        self.is_unmapped.store(false, Ordering::SeqCst);
    }

    /// The part of this process.
    pub fn role(&self) -> Role {
        let listener = self.listener.load(Ordering::SeqCst);
        match self.is_acceptor.load(Ordering::SeqCst) {
            true => Role::Server(listener, self.slot()),
            false => Role::Client(listener),
        }
    }

    fn slot(&self) -> u8 {
        self.slot.load(Ordering::SeqCst) as u8
    }

    /// This process's side of the connections.
    pub fn side(&self) -> Side {
        match self.is_acceptor.load(Ordering::SeqCst) {
            true => Side::Acceptor,
            false => Side::Connector,
        }
    }

    /// See [`Locks::open`].
    pub fn keep(&'static self, file: BorrowedFd<'_>) {
        self.locks.open(file);
    }

    /// Adds a process of the other side, with its number, and this process's end of the line. Returns
    /// false if there is no room for the descriptor.
    pub fn add(&'static self, slot: u8, number: u32, line: OwnedFd) -> bool {
        let is_added = self.others.add(slot, number, line);
        if is_added && self.side() == Side::Connector {
            self.queue().know(slot);
        }
        is_added
    }

    /// Unmaps a pool that no thread has found. Returns true if the pair is free.
    pub fn give_up(&self) -> bool {
        self.is_dead.store(true, Ordering::SeqCst);
        self.has_closed.store(true, Ordering::SeqCst);
        self.retire()
    }

    /// The connections that wait. The caller knows that the pool is mapped.
    pub fn queue(&self) -> &Queue {
        self.pool.queue()
    }

    fn is_own(&self) -> bool {
        !self.is_inherited.load(Ordering::Relaxed)
    }

    /// The number of the process at the other end of a connection. `None` while it is unknown: the
    /// connection waits.
    pub fn peer_of(&self, place: (u8, u64)) -> Option<u32> {
        let slot = match self.side() {
            Side::Acceptor => 0,
            Side::Connector => self.queue().taker(place)?,
        };
        self.others.find(slot).map(Other::number)
    }

    /// The end of a connection whose other side was killed, or that no process will accept.
    pub fn lost(&self, place: (u8, u64)) -> Option<End> {
        let is_down = match self.side() {
            Side::Acceptor => self.is_down(),
            Side::Connector => match self.queue().taker(place) {
                Some(slot) => self.others.find(slot).is_some_and(Other::is_down),
                None if self.is_served(|_| true) => false,
                None => return self.undo_waiting(place).then_some(End::Reset),
            },
        };
        is_down.then_some(End::Closed)
    }

    /// Returns true if it gets no further connection: at a server, this process has
    /// closed the listener; at the client, all have.
    fn was_closed(&self) -> bool {
        self.has_closed.load(Ordering::SeqCst)
            || self.was_open.load(Ordering::Relaxed) && self.queue().is_closed()
    }

    /// The client's port of a connection.
    pub fn port(&self, number: u8) -> u16 {
        let port = self.segment(number).ends().port() % SEGMENTS as u8;
        self.first_port.load(Ordering::Relaxed).wrapping_add(port.into())
    }

    /// Returns true once no process has the other end of a line.
    pub fn is_down(&self) -> bool {
        if self.is_dead.load(Ordering::SeqCst) {
            return true;
        }
        let is_down = self.others.iter().all(|(_, other)| other.is_down());
        if is_down {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        is_down
    }

    /// Returns true if a process of the other side may have ended.
    pub fn may_have_ended(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
            || self.others.iter().any(|(_, other)| other.is_down())
            || self.has_forked_peer()
            || self.was_closed()
    }

    /// Returns true if several processes of the other side have, or had, some of its connections.
    fn has_forked_peer(&self) -> bool {
        self.queue().has_forked(self.side().other())
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

    /// No thread of this process still uses the segment of a connection. With `is_last`, no
    /// other process has this side of it either.
    pub fn end(&self, number: u8, generation: u64, is_last: bool) {
        // Before the client can use the segment again.
        self.taken.set(number, false);
        if is_last {
            self.acknowledge(number, generation);
        }
        self.unlock(number);
        if self.side() == Side::Connector && self.is_own() {
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
        let flags = [&self.is_dead, &self.has_closed, &self.is_inherited];
        if is_last && flags.iter().any(|flag| flag.load(Ordering::SeqCst)) {
            pairs::retire();
        }
    }

    /// In the child of a fork, which has these connections in it.
    pub fn inherit(&'static self, numbers: &[u8]) {
        self.is_inherited.store(true, Ordering::SeqCst);
        self.users.store(numbers.len() as u32, Ordering::SeqCst);
        self.lock_in_child(numbers);
    }

    /// Unmaps the pool, and gives up the lines, if no connection of this process is in it and none
    /// can be: the other side has ended and, at this side, none [waits](Self::has_waiting); all
    /// processes have closed the listener; or the pair is inherited. Returns true if it has done so.
    pub fn retire(&self) -> bool {
        let is_inherited = self.is_inherited.load(Ordering::SeqCst);
        let is_over = is_inherited || self.was_closed() || self.is_down() && !self.has_waiting();
        // The child of a vfork(2) has the memory of its parent.
        let is_unused = self.users.load(Ordering::SeqCst) == 0 && process::owns_tables();
        if !is_over || !is_unused {
            return false;
        }
        self.is_unmapped.store(true, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) != 0 {
            // A connection begins just now, and finds that it may not.
            self.is_unmapped.store(false, Ordering::SeqCst);
            return false;
        }
        self.others.clear();
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
