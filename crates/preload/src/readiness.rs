//! What poll(2) and epoll(7) say of a connection whose bytes go by a ring.

use std::sync::atomic::Ordering;

use levada_ring::Waiter;
use libc::c_short;

use crate::connection::{Connection, Path, PeerEnd, Phase};
use crate::segments::User;
use crate::table::Entry;
use crate::tcp::{self, Queue};
use crate::{demote, direct, epoll, seccomp, segments, stream, tcp_only, waking};

/// Events that TCP answers while a direction is not on a ring.
const INBOUND: c_short = libc::POLLIN | libc::POLLRDNORM;
const OUTBOUND: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// Whether rings have a say in what is ready. Takes what is due first: the peer has begun to use
/// the ring, or has left it.
pub fn is_by_ring(entry: Entry) -> bool {
    match entry.connection.phase() {
        Phase::Direct => return true,
        Phase::Listening => return !tcp_only::is_on(),
        Phase::Paired if entry.connection.uses_ring() => {}
        _ => return false,
    }
    if entry.connection.inbound_path() == Path::Ready {
        settle(entry);
    }
    demote::honour_leave(entry);
    entry.connection.uses_ring()
}

/// Waits for a start that is pending: the peer is in a call that ends soon, or its bytes are in TCP
/// already.
fn settle(entry: Entry) {
    while !stream::settle_inbound(entry) {
        let pending = entry.connection.lock_inbound().is_some_and(|mut inbound| {
            inbound.path() == Path::Ready
                && inbound.consumer().start() == levada_ring::Start::Pending
        });
        if !pending || tcp::queue(entry.fd) != Queue::Empty {
            return;
        }
        std::thread::yield_now();
    }
}

/// Returns true if the peer was on the processor of this thread when it last wrote to the ring.
pub fn shares_processor(entry: Entry) -> bool {
    let connection = entry.connection;
    connection.inbound_path() == Path::Ring
        && connection.shares_processor(&User::asleep(entry.number), PeerEnd::Writer)
}

/// Of `events`, those for which the kernel still is asked.
pub fn for_kernel(connection: &Connection, events: c_short) -> c_short {
    let mut left = events;
    match connection.phase() {
        Phase::Direct => return 0,
        Phase::Listening => return events,
        _ => {}
    }
    if connection.inbound_path() == Path::Ring {
        left &= !INBOUND;
    }
    if connection.outbound_path() == Path::Ring {
        left &= !OUTBOUND;
    }
    // The peer's end of stream shows that it has gone.
    left | libc::POLLRDHUP
}

/// The kernel has shown the end of the peer's stream, or an error: the next reads look at TCP, and
/// what is written goes there.
pub fn note_kernel(entry: Entry, shown: c_short) {
    if matches!(entry.connection.phase(), Phase::Direct | Phase::Listening) {
        return;
    }
    if shown & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
        entry.connection.tcp_ended.store(1, Ordering::Relaxed);
        epoll::look_again(entry.number);
        demote::forget_dead_reader(entry);
    }
}

/// What is ready by the rings, whatever the program wants.
pub fn by_ring(entry: Entry) -> c_short {
    let connection = entry.connection;
    match connection.phase() {
        Phase::Direct => return direct::ready(entry),
        Phase::Listening => return if direct::has_waiting(entry) { INBOUND } else { 0 },
        _ => {}
    }
    let mut ready = 0;
    let path = connection.inbound_path();
    if path == Path::Ready
        && let Some(mut inbound) = connection.lock_inbound()
        && inbound.consumer().readable() != Ok(0)
    {
        // Behind bytes of TCP that the program has not read yet.
        ready |= INBOUND;
    }
    if path == Path::Ring
        && let Some(mut inbound) = connection.lock_inbound_quickly()
    {
        if connection.tcp_ended.load(Ordering::Relaxed) != 0 {
            ready |= INBOUND | libc::POLLRDHUP;
        }
        let empty = inbound.consumer().readable() == Ok(0);
        if !empty || connection.read_shut.load(Ordering::Relaxed) != 0 {
            ready |= INBOUND;
        }
        if inbound.consumer().is_finished() && !seccomp::is_sealed() {
            // The stream ends in TCP, or goes on there.
            let asked = if empty { INBOUND | libc::POLLRDHUP } else { libc::POLLRDHUP };
            ready |= tcp::ready(entry.fd, asked);
            if empty && inbound.consumer().readable() == Ok(0) {
                inbound.set_path(Path::Back);
            }
        }
    }
    if connection.outbound_path() == Path::Ring
        && let Some(mut outbound) = connection.lock_outbound_quickly()
        && (outbound.producer().room() != Ok(0) || demote::reader_has_gone(&mut outbound))
    {
        ready |= OUTBOUND;
    }
    ready
}

/// Asks the peer to ring a bell when it has done something that one of `events` may come from. The
/// caller looks once more after it.
pub fn arm(entry: Entry, events: c_short, bell: u8) {
    let connection = entry.connection;
    let waiter = Waiter::Bell { bell, mark: entry.number as u16 };
    if events & INBOUND != 0 && connection.phase() == Phase::Listening {
        direct::announce(entry, bell);
    }
    if events & INBOUND != 0
        && matches!(connection.inbound_path(), Path::Ready | Path::Ring)
        && let Some(mut inbound) = connection.lock_inbound()
    {
        inbound.consumer().announce_sleep(waiter);
    }
    if events & OUTBOUND != 0
        && connection.outbound_path() == Path::Ring
        && let Some(mut outbound) = connection.lock_outbound()
    {
        outbound.producer().announce_sleep(waiter);
    }
}

/// Takes [`arm`] back. When the peer rang, in nanoseconds of [`levada_ring::now`], if it may have
/// since.
///
/// A direction has one wake-up: other threads of this process that wait for it, too, check again.
pub fn disarm(entry: Entry, events: c_short, bell: u8) -> Option<u64> {
    let connection = entry.connection;
    let waiter = Waiter::Bell { bell, mark: entry.number as u16 };
    let own = segments::own(entry.number);
    let mut inbound_at = None;
    let mut outbound_at = None;
    if events & INBOUND != 0
        && let Some(mut inbound) = connection.lock_inbound()
    {
        inbound_at = inbound.consumer().awake(waiter);
        if connection.inbound.sleeper.load(Ordering::SeqCst) != 0 {
            inbound.consumer().wake_own();
        }
    }
    if events & OUTBOUND != 0
        && let Some(mut outbound) = connection.lock_outbound()
    {
        outbound_at = outbound.producer().awake(waiter);
        if connection.outbound.sleeper.load(Ordering::SeqCst) != 0 {
            outbound.producer().wake_own();
        }
    }
    if own.has_waits(directions(events)) {
        waking::ring_all_own();
    }
    inbound_at.max(outbound_at)
}

/// The directions that these events are of.
pub fn directions(events: c_short) -> [bool; 2] {
    [events & INBOUND != 0, events & OUTBOUND != 0]
}

/// What changes when something comes: the bytes so far, and whether the stream has ended.
pub fn position(entry: Entry) -> u64 {
    if entry.connection.phase() == Phase::Listening {
        return direct::made();
    }
    let ended = u64::from(entry.connection.tcp_ended.load(Ordering::Relaxed));
    entry.connection.lock_inbound_quickly().map_or(0, |mut inbound| {
        let _ = inbound.consumer().readable();
        let finished = u64::from(inbound.consumer().is_finished());
        inbound.consumer().shown() << 2 | finished << 1 | ended
    })
}
