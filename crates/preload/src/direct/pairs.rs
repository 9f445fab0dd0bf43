//! The processes that this one has a pool of segments with.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use levada_ring::Side;
use levada_ring::queue::Entry as Waiting;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pool::Pair;
use super::ports;
use crate::lock::Guarded;

/// Pools of this process.
const MAX: usize = 256;

static ALL: Guarded<Vec<&'static Pair>> = Guarded::new(Vec::new());

/// The pool with a process, if there is one.
pub fn find(peer: u32, side: Side) -> Option<&'static Pair> {
    ALL.with(|all| all.iter().find(|pair| pair.peer == peer && pair.side == side).copied())?
}

/// Threads that take an entry of a queue: until they have entered its pool, none is unmapped.
static TAKING: AtomicU32 = AtomicU32::new(0);

/// Takes an entry, and enters the pool with its client. The pool is `None` for an entry that no
/// client has made which the monitor has introduced: a client makes entries when its pool
/// [is ready](levada_ring::ends::Ends::is_ready).
pub fn take(
    from_queue: impl FnOnce() -> Option<Waiting>,
) -> Option<(Waiting, Option<&'static Pair>)> {
    TAKING.fetch_add(1, Ordering::SeqCst);
    let taken = from_queue();
    let pair = taken
        .as_ref()
        .and_then(|waiting| find(waiting.client, Side::Acceptor).filter(|pair| pair.enter()));
    TAKING.fetch_sub(1, Ordering::SeqCst);
    taken.map(|waiting| (waiting, pair))
}

/// Notes a pool that the monitor has handed to this process and to another one.
pub fn learn(peer: u32, side: Side, port: u16, [pool, pidfd]: [OwnedFd; 2]) {
    let Some(pair) = Pair::open(peer, side, port, &pool) else { return };
    let is_kept = pair.keep(pidfd);
    let added = ALL.with(|all| {
        forget_dead(all);
        let has_room = is_kept && all.len() < MAX;
        if has_room {
            // One that was made before the monitor had to give up.
            all.retain(|one| (one.peer, one.side) != (peer, side));
            all.push(pair);
        }
        has_room
    });
    match added {
        Some(true) => pair.set_ready(),
        _ => pair.give_up(),
    }
}

/// Another process has ended, by the monitor.
pub fn gone(peer: u32) {
    ALL.with(|all| {
        if all.iter().any(|pair| pair.peer == peer) {
            forget_dead(all);
        }
    });
}

/// Lets go of the pools with processes that have ended.
fn forget_dead(all: &mut Vec<&'static Pair>) {
    all.retain(|pair| pair.is_alive() || !pair.unmap_if_unused());
}

/// Returns true while a thread takes an entry of a queue.
pub fn is_taking() -> bool {
    TAKING.load(Ordering::SeqCst) != 0
}

/// See [`Guarded`].
pub fn before_fork() {
    ALL.before_fork(|_| ());
    ports::before_fork();
}

/// In parent and child.
pub fn after_fork() {
    ALL.after_fork();
    ports::after_fork();
}

/// See [`in_child`](super::in_child).
pub fn in_child() {
    ALL.with(Vec::clear);
    TAKING.store(0, Ordering::Relaxed);
    ports::in_child();
}

/// Returns true unless the kernel shows that a process has ended.
pub fn is_alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut entry = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut entry, Some(&now)), Ok(1..))
}

/// Returns true if a process is alive, or if that cannot be seen. One that has ended, and that its
/// parent has not waited for, is not alive.
pub fn is_process_alive(process: u32) -> bool {
    let number = process.cast_signed();
    let Some(pid) = rustix::process::Pid::from_raw(number) else { return false };
    let flags = rustix::process::PidfdFlags::empty();
    match rustix::process::pidfd_open(pid, flags) {
        Ok(pidfd) => is_alive(pidfd.as_fd()),
        Err(error) => error != Errno::SRCH,
    }
}
