//! Sleeping until the peer has done something.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use levada_ring::records::Reason;
use levada_ring::{Half, Sleep, Sleeper};
use libc::c_int;

use super::end::ended;
use crate::connection::Direction;
use crate::segments::{self, User};
use crate::spin::Look;
use crate::table::Entry;
use crate::{demote, direct, epoll, memory, tcp, tcp_only, waking};

/// How long to sleep before looking at TCP: a killed peer rings no bell.
const SLICE: Duration = Duration::from_secs(1);
/// Between looks, when another thread already sleeps on the same direction.
pub const CROWDED: Duration = Duration::from_millis(1);

/// How a wait ended.
pub enum Wait {
    /// The caller looks again.
    Again,
    /// The call fails with this number.
    Over(c_int),
}

/// When a wait that begins now ends, by SO_RCVTIMEO or SO_SNDTIMEO. `None` for a wait without end.
pub fn deadline_of(entry: Entry, option: c_int) -> Option<Instant> {
    if entry.connection.has_timeouts.load(Ordering::Relaxed) == 0 {
        return None;
    }
    tcp::timeout(entry.fd, option).and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Sleeps on a direction, unless `prepare` finds that there is something to do; `awake` follows.
pub fn sleep(
    entry: Entry,
    (direction, look): (&Direction, &Look<'_>),
    deadline: Option<Instant>,
    prepare: impl FnOnce() -> Option<Sleeper<Half>>,
    awake: impl FnOnce() -> Option<u64>,
) -> Wait {
    let connection = entry.connection;
    if !direct::is_direct(entry) && tcp::is_nonblocking(entry.fd) {
        // The program has said so by a system call of its own: it may make others, which find TCP
        // only.
        connection.nonblocking.store(1, Ordering::Relaxed);
        tcp_only::enter(Reason::Unsupported);
        return Wait::Again;
    }
    if !claim(&direction.sleeper) {
        return crowded(deadline);
    }
    // The segment stays mapped, also if another thread closes the connection.
    let user = User::asleep(entry.number);
    let wait = prepare().map_or(Wait::Again, |word| {
        let (slice, last) = slice_until(deadline);
        let woken = word.sleep(slice, deadline.is_none());
        look.slept(awake());
        connection.record().counters.sleeps.fetch_add(1, Ordering::Relaxed);
        memory::sweep();
        after_sleep(entry, woken, last)
    });
    direction.sleeper.store(0, Ordering::Release);
    // What an epoll or poll(2) has asked the peer for was replaced.
    epoll::look_again(entry.number);
    let is_inbound = std::ptr::eq(direction, &raw const connection.inbound);
    if segments::own(entry.number).has_waits([is_inbound, !is_inbound]) {
        waking::ring_all_own();
    }
    drop(user);
    wait
}

/// The time of the next sleep, and whether the deadline is at its end.
fn slice_until(deadline: Option<Instant>) -> (Duration, bool) {
    let left =
        deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
    (left.min(SLICE), deadline.is_some() && left <= SLICE)
}

fn after_sleep(entry: Entry, woken: Sleep, last: bool) -> Wait {
    match woken {
        Sleep::Interrupted => Wait::Over(libc::EINTR),
        Sleep::TimedOut if last => Wait::Over(libc::EAGAIN),
        Sleep::TimedOut if direct::is_direct(entry) => {
            direct::bury_if_dead(entry);
            Wait::Again
        }
        Sleep::TimedOut => {
            ended(entry);
            demote::honour_leave(entry);
            demote::forget_dead_reader(entry);
            Wait::Again
        }
        Sleep::Woken => {
            demote::honour_leave(entry);
            Wait::Again
        }
    }
}

fn claim(sleeper: &AtomicU32) -> bool {
    let own = crate::process::thread();
    sleeper.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Waits for a moment, because the bytes that a peek leaves in the ring would end every other wait.
/// Returns false at the deadline, and after a signal.
pub fn pause(deadline: Option<Instant>) -> bool {
    let left =
        deadline.map_or(CROWDED, |deadline| deadline.saturating_duration_since(Instant::now()));
    let time = crate::poll::timespec_of(left.min(CROWDED));
    // SAFETY: the call reads a local, and writes nothing.
    !left.is_zero() && unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) } == 0
}

/// Another thread sleeps on this direction already.
fn crowded(deadline: Option<Instant>) -> Wait {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Wait::Over(libc::EAGAIN);
    }
    std::thread::sleep(CROWDED);
    Wait::Again
}
