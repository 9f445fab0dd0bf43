//! The processes that this one has a pool of segments with.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use levada_ring::{Leaked, Pool, SEGMENTS, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lock::Guarded;
use crate::{memory, monitor, private, process};

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
    segments: Guarded<Segments>,
}

/// The client's segments.
struct Segments {
    /// Those that this process has closed. The other side may have them still.
    closed: Vec<u8>,
    generations: [u64; SEGMENTS],
    /// Segments that were ever used.
    used: u8,
}

/// The ports of this process's connections as a client. No two of them have the same one, although
/// those to different listeners could.
struct Ports {
    is_used: [bool; SEGMENTS],
    last: u8,
}

static PORTS: Guarded<Ports> = Guarded::new(Ports { is_used: [false; SEGMENTS], last: 0 });

/// Closed segments that are looked at, from the last one on, before another is used: the memory of
/// the last is in the cache.
const LOOKS: usize = 4;
/// Pools of this process.
const MAX: usize = 256;

static ALL: Guarded<Vec<&'static Pair>> = Guarded::new(Vec::new());

/// The pool with a process, if there is one.
pub fn find(peer: u32, side: Side) -> Option<&'static Pair> {
    ALL.with(|all| all.iter().find(|pair| pair.peer == peer && pair.side == side).copied())?
}

/// Attempts to find the monitor's message about a new client.
const ATTEMPTS: u32 = 1000;

/// The pool with a client of a listener. The monitor has sent it before the client could make an
/// entry.
pub fn of_client(client: u32) -> Option<&'static Pair> {
    for _ in 0..ATTEMPTS {
        let found = find(client, Side::Acceptor).or_else(|| {
            monitor::collect();
            find(client, Side::Acceptor)
        });
        if found.is_some() {
            return found;
        }
        // Another thread handles the message.
        std::thread::yield_now();
    }
    None
}

/// Notes a pool that the monitor has handed to this process and to another one.
pub fn learn(peer: u32, side: Side, port: u16, [pool, pidfd]: [OwnedFd; 2]) {
    let Ok(pool) = Pool::open(&pool) else { return };
    let closed = Vec::with_capacity(SEGMENTS);
    let pair: &'static Pair = Box::leak(Box::new(Pair {
        peer,
        side,
        first_port: port,
        owner: process::own(),
        pool,
        pidfd: AtomicI32::new(-1),
        is_dead: AtomicBool::new(false),
        users: AtomicU32::new(0),
        is_unmapped: AtomicBool::new(false),
        segments: Guarded::new(Segments { closed, generations: [0; SEGMENTS], used: 0 }),
    }));
    let is_kept = private::keep_in(&pair.pidfd, pidfd).is_ok();
    let added = ALL.with(|all| {
        forget_dead(all);
        let has_room = is_kept && all.len() < MAX;
        if has_room {
            all.push(pair);
        }
        has_room
    });
    if added != Some(true) {
        pair.is_dead.store(true, Ordering::SeqCst);
        pair.unmap_if_unused();
    }
}

/// Lets go of the pools with processes that have ended.
fn forget_dead(all: &mut Vec<&'static Pair>) {
    all.retain(|pair| {
        let is_alive = pair.is_alive();
        if !is_alive {
            pair.unmap_if_unused();
        }
        is_alive
    });
}

/// See [`Guarded`].
pub fn before_fork() {
    ALL.before_fork(|_| ());
    PORTS.before_fork(|_| ());
}

/// In parent and child.
pub fn after_fork() {
    ALL.after_fork();
    PORTS.after_fork();
}

/// See [`in_child`](super::in_child).
pub fn in_child() {
    ALL.with(Vec::clear);
    PORTS.with(|ports| ports.is_used.fill(false));
}

/// Returns true unless the kernel shows that a process has ended.
fn is_alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut entry = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut entry, Some(&now)) == Ok(0)
}

/// Returns true if a process is alive. One that has ended, and that its parent has not waited for,
/// is not.
pub fn is_process_alive(process: u32) -> bool {
    let number = process.cast_signed();
    let Some(pid) = rustix::process::Pid::from_raw(number) else { return false };
    let flags = rustix::process::PidfdFlags::empty();
    rustix::process::pidfd_open(pid, flags).is_ok_and(|pidfd| is_alive(pidfd.as_fd()))
}

impl Ports {
    /// A port that no connection has, and that was not used for longest. `None` if there is none.
    fn take(&mut self) -> Option<u8> {
        for _ in 0..SEGMENTS {
            self.last = (self.last + 1) % SEGMENTS as u8;
            if !std::mem::replace(&mut self.is_used[usize::from(self.last)], true) {
                return Some(self.last);
            }
        }
        None
    }

    fn give_back(&mut self, port: u8) {
        self.is_used[usize::from(port) % SEGMENTS] = false;
    }
}

impl Pair {
    /// The client's port of a connection.
    pub fn port(&self, number: u8) -> u16 {
        let port = self.segment(number).ends().port() % SEGMENTS as u8;
        self.first_port + u16::from(port)
    }

    /// Returns true unless the kernel shows that the other process has ended.
    pub fn is_alive(&self) -> bool {
        if self.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        let is_alive = private::with(&self.pidfd, is_alive) == Some(true);
        if !is_alive {
            self.is_dead.store(true, Ordering::SeqCst);
        }
        is_alive
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
        let port = PORTS.with(Ports::take)??;
        if !self.enter() {
            PORTS.with(|ports| ports.give_back(port));
            return None;
        }
        let begun = self.segments.with(|segments| {
            let number = self.take_closed(segments).or_else(|| self.take_unused(segments))?;
            let segment = self.pool.segment(number);
            let generation = segment.begin();
            segment.ends().hold(self.side, process::own());
            segment.ends().set_address(port, is_ipv6);
            segments.generations[usize::from(number)] = generation;
            Some((number, generation))
        });
        if begun.flatten().is_none() {
            PORTS.with(|ports| ports.give_back(port));
            self.leave();
        }
        begun.flatten()
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
        Some(segments.closed.remove(first + at))
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

    /// One more connection of this process is in the pool. `false` if it is, or may soon be,
    /// unmapped.
    pub fn enter(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        let is_usable = self.owner == process::own()
            && !self.is_dead.load(Ordering::SeqCst)
            && !self.is_unmapped.load(Ordering::SeqCst);
        if !is_usable {
            self.leave();
        }
        is_usable
    }

    /// No thread of this process uses the segment of a connection any more. With `is_last`, no
    /// other process has this side of it either.
    pub fn end(&self, number: u8, generation: u64, is_last: bool) {
        if is_last {
            self.pool.segment(number).ends().acknowledge(self.side, generation);
        }
        if self.side == Side::Connector && self.owner == process::own() {
            PORTS.with(|ports| ports.give_back(self.segment(number).ends().port()));
            self.segments.with(|segments| segments.closed.push(number));
        }
        self.leave();
    }

    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_dead.load(Ordering::SeqCst) {
            self.unmap_if_unused();
        }
    }

    /// Unmaps the pool with a dead process, unless a connection is in it.
    fn unmap_if_unused(&self) {
        // In the child of a fork, another thread of the parent may have had the lock.
        let is_unused = self.users.load(Ordering::SeqCst) == 0 && self.owner == process::own();
        if !is_unused || self.is_unmapped.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.users.load(Ordering::SeqCst) != 0 {
            // A connection begins just now, and finds that it may not.
            self.is_unmapped.store(false, Ordering::SeqCst);
            return;
        }
        let used = self.segments.with(|segments| segments.used).unwrap_or(0);
        memory::give_pooled_back(used.into());
        private::forget(&self.pidfd);
        // SAFETY: no connection of this process is in the pool, and none begins: `is_dead` is set.
        unsafe { self.pool.unmap() };
    }
}
