//! The end of a connection without TCP, and what is ready of it, as TCP would show it.

use std::sync::atomic::Ordering;

use levada_ring::ends::End;
use levada_ring::{Leaked, Side};
use libc::{c_int, c_short};

use super::pool::Pair;
use crate::connection::{Connection, Path};
use crate::segments::User;
use crate::table::Entry;
use crate::{epoll, errno, segments, tcp, waking};

const INBOUND: c_short = libc::POLLIN | libc::POLLRDNORM;
const OUTBOUND: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// The segment of a connection, which is mapped while this exists, this process's side of it, and
/// the pool that it is in.
struct Used {
    segment: Leaked,
    side: Side,
    pair: &'static Pair,
    place: (u8, u64),
    _user: User,
}

fn place(number: u32) -> Option<Used> {
    let own = segments::own(number);
    let user = User::asleep(number);
    let (segment, side) = own.segment()?;
    let (pair, number, generation) = own.pair()?;
    Some(Used { segment, side, pair, place: (number, generation), _user: user })
}

/// The last process that has this side closes it.
pub fn goodbye(entry: Entry) {
    let connection = entry.connection;
    let Some(Used { segment, side, _user, .. }) = place(entry.number) else { return };
    let mut inbound = connection.lock_inbound();
    let unread = |inbound: &mut crate::connection::Inbound<'_>| {
        inbound.consumer().readable().is_ok_and(|bytes| bytes > 0)
    };
    let is_unread = inbound.as_mut().is_some_and(unread);
    let lingers_not =
        connection.has_linger.load(Ordering::Relaxed) != 0 && tcp::lingers_not(entry.fd);
    let is_reset = is_unread || lingers_not;
    // Before the rings end: who sees their end sees how.
    let had_ended = connection.write_shut.load(Ordering::Relaxed) != 0;
    segment.ends().end(side, if is_reset { reset(had_ended) } else { End::Closed });
    let other = inbound.as_mut().and_then(|inbound| inbound.consumer().abandon());
    drop(inbound);
    let waiter = connection.lock_outbound().and_then(|mut outbound| outbound.producer().finish());
    waking::ring(connection, waiter);
    waking::ring(connection, other);
}

/// A reset by a side that may have ended its stream before.
fn reset(had_ended: bool) -> End {
    if had_ended { End::LateReset } else { End::Reset }
}

/// Lets go of the segment of a connection that no process has any more when this one ends, or
/// becomes another program. Until then, no other thread gets to the rings.
pub fn leave_for_good(entry: Entry) {
    goodbye(entry);
    let connection = entry.connection;
    if let Some((pair, number, generation)) = segments::own(entry.number).pair()
        && let (Some(inbound), Some(outbound)) =
            (connection.lock_inbound(), connection.lock_outbound())
    {
        std::mem::forget((inbound, outbound));
        pair.acknowledge(number, generation);
    }
}

/// If no process has the other side, shows its end. Returns true if so.
pub fn bury_if_dead(entry: Entry) -> bool {
    let Some(used) = place(entry.number) else { return false };
    let Used { segment, side, pair, .. } = used;
    let left = || pair.is_left(side.other(), used.place.0).then_some(End::Closed);
    let Some(end) = pair.lost(used.place).or_else(left) else { return false };
    // It may have been killed at any step of closing. TCP resets a connection whose process has ended
    // with bytes that it has not read.
    let has_ended = || {
        let mut inbound = entry.connection.lock_inbound();
        inbound.as_mut().is_some_and(|inbound| inbound.consumer().is_finished())
    };
    let end = if segment.has_unread(side) { reset(has_ended()) } else { end };
    segment.ends().end(side.other(), end);
    segment.bury(side.other());
    true
}

/// Takes note of a reset by the peer.
pub fn note_reset(connection: &Connection) {
    if connection.is_gone.load(Ordering::Relaxed) != 0 {
        return;
    }
    let number = crate::arena::number(connection);
    let Some(used) = place(number) else { return };
    match used.segment.ends().ended(used.side.other()) {
        End::Reset => set_gone(connection, libc::ECONNRESET),
        // As the kernel does in the state CLOSE_WAIT. After both streams, it has no connection.
        End::LateReset if connection.write_shut.load(Ordering::Relaxed) == 0 => {
            set_gone(connection, libc::EPIPE);
        }
        _ => {}
    }
}

/// Bytes of this process were answered by a reset, which resets the other end as well, if it has
/// shut both directions and is not closed.
pub fn reset_both(connection: &Connection, error: c_int) {
    if let Some(used) = place(crate::arena::number(connection)) {
        used.segment.ends().end(used.side, End::Reset);
    }
    set_gone(connection, error);
}

/// The peer answers with a reset: the error that the next call finds.
pub fn set_gone(connection: &Connection, error: c_int) {
    connection.error.store(error.unsigned_abs(), Ordering::Relaxed);
    connection.is_gone.store(1, Ordering::Release);
    connection.tcp_ended.store(1, Ordering::Relaxed);
    epoll::look_again(crate::arena::number(connection));
}

/// Returns true once both directions have ended: the kernel would have no connection left.
pub fn is_over(connection: &Connection) -> bool {
    note_reset(connection);
    let has_peer_ended =
        || connection.lock_inbound().is_none_or(|mut inbound| inbound.consumer().is_finished());
    connection.is_gone.load(Ordering::Relaxed) != 0
        || connection.write_shut.load(Ordering::Relaxed) != 0 && has_peer_ended()
}

/// Takes the error that is pending.
pub fn take_error(connection: &Connection) -> Option<c_int> {
    match connection.error.load(Ordering::Relaxed) {
        0 => None,
        _ => {
            Some(connection.error.swap(0, Ordering::Relaxed).cast_signed()).filter(|one| *one != 0)
        }
    }
}

/// The events that are ready, of all.
pub fn ready(entry: Entry) -> c_short {
    let connection = entry.connection;
    note_reset(connection);
    let is_gone = connection.is_gone.load(Ordering::Acquire) != 0;
    let is_write_shut = is_gone || connection.write_shut.load(Ordering::Relaxed) != 0;
    let mut is_read_shut = is_gone || connection.read_shut.load(Ordering::Relaxed) != 0;
    let mut ready = 0;
    if let Some(mut inbound) = connection.lock_inbound_quickly() {
        is_read_shut |= inbound.consumer().is_finished();
        if inbound.consumer().readable() != Ok(0) {
            ready |= INBOUND;
        }
    }
    if is_read_shut {
        ready |= INBOUND | libc::POLLRDHUP;
    }
    let has_room = || {
        connection.lock_outbound_quickly().is_some_and(|mut outbound| {
            outbound.producer().room() != Ok(0) || outbound.producer().is_abandoned()
        })
    };
    if is_write_shut || has_room() {
        ready |= OUTBOUND;
    }
    if is_read_shut && is_write_shut {
        ready |= libc::POLLHUP;
    }
    if connection.error.load(Ordering::Relaxed) != 0 {
        ready |= libc::POLLERR;
    }
    ready
}

/// shutdown(2).
pub fn shutdown(entry: Entry, how: c_int) -> c_int {
    let connection = entry.connection;
    if is_over(connection) {
        return errno::fail(libc::ENOTCONN) as c_int;
    }
    if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
        return errno::fail(libc::EINVAL) as c_int;
    }
    if how != libc::SHUT_RD {
        connection.write_shut.store(1, Ordering::Relaxed);
        let waiter =
            connection.lock_outbound().and_then(|mut outbound| outbound.producer().finish());
        waking::ring(connection, waiter);
    }
    if how != libc::SHUT_WR {
        connection.read_shut.store(1, Ordering::Relaxed);
        let waiter = connection.lock_inbound().and_then(|mut inbound| inbound.consumer().wake());
        waking::ring_here(waiter);
    }
    let both = [&connection.read_shut, &connection.write_shut];
    if both.iter().all(|shut| shut.load(Ordering::Relaxed) != 0) {
        // What comes now, the kernel would answer with a reset.
        let waiter = connection.lock_inbound().and_then(|mut inbound| inbound.consumer().abandon());
        waking::ring(connection, waiter);
    }
    epoll::changed(entry);
    0
}

/// Ends a connection whose peer has written what no correct peer writes. Returns the result of the
/// call.
pub fn corrupt(entry: Entry) -> isize {
    let connection = entry.connection;
    for path in [&connection.inbound, &connection.outbound] {
        path.set_path(Path::Back);
    }
    if let Some(Used { segment, side, _user, .. }) = place(entry.number) {
        segment.ends().end(side, End::Reset);
        let waiters = segment.end_all(side);
        waiters.into_iter().for_each(|waiter| waking::ring(connection, waiter));
    }
    connection.note(levada_ring::records::Reason::Corrupt);
    set_gone(connection, 0);
    errno::fail(libc::ECONNRESET)
}
