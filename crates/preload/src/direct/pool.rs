//! The pool of segments that this process shares with another one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use levada_ring::{Leaked, Pool, SEGMENTS, Side};

use super::pairs::{is_alive, is_process_alive, is_taking};
use super::{listeners, ports};
use crate::lock::Guarded;
use crate::{memory, private, process, spin};

/// The pool of a client and a process that listens. It is never freed, only unmapped.
pub struct Pair {
    /// The number that the monitor has given to the other process.
    pub peer: u32,
    /// This process's side of the connections.
    pub side: Side,
    /// The first of the client's ports, one for each segment.
    first_port: u16,
    /// The process that has mapped it: a child of a fork takes no segments.
    owner: u32,
    pool: Pool,
    pidfd: AtomicI32,
    is_dead: AtomicBool,
    /// Connections of this process in it.
    users: AtomicU32,
    is_unmapped: AtomicBool,
    /// A bit for each segment whose connection this process has accepted, and not let go of.
    accepted: [AtomicU64; SEGMENTS / 64],
    segments: Guarded<Segments>,
}

/// The client's segments. Empty at the other side.
struct Segments {
    /// Those that this process has closed. The other side may have them still.
    closed: Vec<u8>,
    generations: Vec<u64>,
    /// The port of each, until no process of either side has the connection.
    ports: Vec<Option<u8>>,
    /// Segments that were ever used.
    used: u8,
    /// The time of the last search for segments of killed processes, in [`ticks`](spin::ticks).
    searched: u32,
}

/// Closed segments that are looked at, from the last one on, before another is used: the memory of
/// the last is in the cache.
const LOOKS: usize = 4;
/// The time between two searches for segments of killed processes, in milliseconds.
const INTERVAL: u32 = 1000;

/// The connection of a segment has ended at both sides: its port can be another one's.
fn give_port_back(segments: &mut Segments, number: u8) {
    if let Some(port) = segments.ports[usize::from(number)].take() {
        ports::give_back(port);
    }
}

impl Pair {
    /// Maps a pool. `None` without memory.
    pub fn open(peer: u32, side: Side, port: u16, file: impl AsFd) -> Option<&'static Self> {
        let pool = Pool::open(file).ok()?;
        // Both sides look at the first segment.
        if pool.allocate(0).is_err() {
            // SAFETY: no connection is in it.
            unsafe { pool.unmap() };
            return None;
        }
        let count = if side == Side::Connector { SEGMENTS } else { 0 };
        Some(Box::leak(Box::new(Self {
            peer,
            side,
            first_port: port,
            owner: process::own(),
            pool,
            pidfd: AtomicI32::new(-1),
            is_dead: AtomicBool::new(false),
            users: AtomicU32::new(0),
            is_unmapped: AtomicBool::new(false),
            accepted: [const { AtomicU64::new(0) }; SEGMENTS / 64],
            segments: Guarded::new(Segments {
                closed: Vec::with_capacity(count),
                generations: vec![0; count],
                ports: vec![None; count],
                used: 0,
                searched: 0,
            }),
        })))
    }

    /// Keeps what shows the end of the other process. `false` if there is no room for it.
    pub fn keep(&'static self, pidfd: OwnedFd) -> bool {
        private::keep_in(&self.pidfd, pidfd).is_ok()
    }

    /// This process finds the pool from now on: its client may use it.
    pub fn set_ready(&self) {
        // As a user: the client may have ended, and another thread unmaps the pool.
        if self.side == Side::Acceptor && self.enter() {
            self.pool.segment(0).ends().set_ready();
            self.leave();
        }
    }

    /// Unmaps a pool that no thread has found.
    pub fn give_up(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.unmap_if_unused();
    }

    /// The client's port of a connection.
    pub fn port(&self, number: u8) -> u16 {
        let port = self.segment(number).ends().port() % SEGMENTS as u8;
        self.first_port.wrapping_add(port.into())
    }

    /// Returns true unless the kernel shows that the other process has ended.
    pub fn is_alive(&self) -> bool {
        if self.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        let is_dead = private::with(&self.pidfd, is_alive) == Some(false);
        if is_dead {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        !is_dead
    }

    /// Returns true if the kernel shows that the other process is alive.
    pub fn is_surely_alive(&self) -> bool {
        self.is_alive() && private::with(&self.pidfd, |_| ()).is_some()
    }

    /// Returns true once the other process was seen to have ended.
    pub fn is_known_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    /// A segment. The caller has a connection in it.
    pub fn segment(&self, number: u8) -> Leaked {
        self.pool.segment(number)
    }

    /// Begins a connection in a free segment, as its client. The segment and its generation; `None`
    /// if there is none, or no memory.
    pub fn begin(&self, is_ipv6: bool) -> Option<(u8, u64)> {
        if !self.enter() {
            return None;
        }
        let begin = |segments: &mut Segments| {
            let number = self.take_free(segments)?;
            // After it: a segment that is free again gives its port back.
            let Some(port) = ports::take() else {
                segments.closed.push(number);
                return None;
            };
            let segment = self.pool.segment(number);
            let generation = segment.begin();
            segment.ends().hold(self.side, process::own());
            segment.ends().set_address(port, is_ipv6);
            segments.generations[usize::from(number)] = generation;
            segments.ports[usize::from(number)] = Some(port);
            Some((number, generation))
        };
        // Before the process that listens can find the pool, it would lose the entry.
        let is_ready = self.pool.segment(0).ends().is_ready();
        let begun = is_ready.then(|| self.segments.with(begin)).flatten().flatten();
        if begun.is_none() {
            self.leave();
        }
        begun
    }

    fn take_free(&self, segments: &mut Segments) -> Option<u8> {
        let number = self.take_closed(segments).or_else(|| self.take_unused(segments));
        number.or_else(|| self.take_reclaimed(segments))
    }

    fn take_closed(&self, segments: &mut Segments) -> Option<u8> {
        let is_free = |number: &u8| {
            let generation = segments.generations[usize::from(*number)];
            self.pool.segment(*number).ends().is_free(generation)
        };
        let is_full = usize::from(segments.used) == SEGMENTS;
        let looks = if is_full { SEGMENTS } else { LOOKS };
        let first = segments.closed.len().saturating_sub(looks);
        let at = segments.closed[first..].iter().rposition(is_free)?;
        let number = segments.closed.remove(first + at);
        give_port_back(segments, number);
        Some(number)
    }

    fn take_unused(&self, segments: &mut Segments) -> Option<u8> {
        let number = segments.used;
        if usize::from(number) == SEGMENTS || !memory::take_pooled() {
            return None;
        }
        if self.pool.allocate(number).is_err() {
            memory::give_pooled_back(1);
            return None;
        }
        segments.used += 1;
        Some(number)
    }

    /// A segment that a killed process has left behind: a child of this or of the other process.
    fn take_reclaimed(&self, segments: &mut Segments) -> Option<u8> {
        let now = spin::ticks();
        if now.wrapping_sub(segments.searched) < INTERVAL {
            return None;
        }
        segments.searched = now;
        for number in &segments.closed {
            let generation = segments.generations[usize::from(*number)];
            self.pool.segment(*number).ends().reclaim(generation, is_process_alive);
        }
        self.take_closed(segments)
    }

    /// One more connection of this process is in the pool. `false` if it is, or may soon be,
    /// unmapped.
    pub fn enter(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        // What a dead client has sent, a server still reads.
        let is_over = self.side == Side::Connector && self.is_dead.load(Ordering::SeqCst);
        let is_usable =
            self.owner == process::own() && !is_over && !self.is_unmapped.load(Ordering::SeqCst);
        if !is_usable {
            self.leave();
        }
        is_usable
    }

    /// Accepts the connection of a segment; returns its generation. `None` if no correct client has
    /// made the entry: this process, or another one, has accepted the connection before.
    pub fn accept(&self, number: u8) -> Option<u64> {
        let (word, bit) = self.bit(number);
        if word.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return None;
        }
        let ends = self.pool.segment(number).ends();
        let generation = ends.generation();
        if !ends.accept(generation) {
            word.fetch_and(!bit, Ordering::AcqRel);
            return None;
        }
        Some(generation)
    }

    fn bit(&self, number: u8) -> (&AtomicU64, u64) {
        let number = usize::from(number) % SEGMENTS;
        (&self.accepted[number / 64], 1 << (number % 64))
    }

    /// No thread of this process uses the segment of a connection any more. With `is_last`, no
    /// other process has this side of it either.
    pub fn end(&self, number: u8, generation: u64, is_last: bool) {
        if self.side == Side::Acceptor && self.owner == process::own() {
            // Before the client can make the next entry.
            let (word, bit) = self.bit(number);
            word.fetch_and(!bit, Ordering::AcqRel);
        }
        self.let_go(number, generation, is_last);
        if self.side == Side::Connector && self.owner == process::own() {
            self.segments.with(|segments| {
                if is_last {
                    give_port_back(segments, number);
                }
                segments.closed.push(number);
            });
        }
        self.leave();
    }

    /// This process does not have the connection any longer.
    pub fn let_go(&self, number: u8, generation: u64, is_last: bool) {
        let ends = self.pool.segment(number).ends();
        ends.release(self.side, process::own());
        if is_last {
            ends.acknowledge(self.side, generation);
        }
    }

    /// Takes [`enter`](Self::enter) back.
    pub fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_dead.load(Ordering::SeqCst) {
            self.unmap_if_unused();
        }
    }

    /// Unmaps the pool with a dead process, unless a connection is in it, or in a queue. Returns
    /// true if it is unmapped.
    pub fn unmap_if_unused(&self) -> bool {
        // In the child of a fork, another thread of the parent may have had the lock.
        let is_awaited = || {
            // In this order: what was taken from a queue is noted before.
            listeners::has_any_entry() || is_taking()
        };
        if self.owner != process::own()
            || self.side == Side::Acceptor && is_awaited()
            || self.users.load(Ordering::SeqCst) != 0
        {
            return false;
        }
        if self.is_unmapped.swap(true, Ordering::SeqCst) {
            return true;
        }
        if self.users.load(Ordering::SeqCst) != 0 {
            // A connection begins just now, and finds that it may not.
            self.is_unmapped.store(false, Ordering::SeqCst);
            return false;
        }
        let give_back = |segments: &mut Segments| {
            (0..segments.used).for_each(|number| give_port_back(segments, number));
            segments.used
        };
        let used = self.segments.with(give_back).unwrap_or(0);
        memory::give_pooled_back(used.into());
        private::forget(&self.pidfd);
        // SAFETY: no connection of this process is in the pool, and none begins: `is_dead` is set.
        unsafe { self.pool.unmap() };
        true
    }
}
