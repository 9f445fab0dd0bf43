//! What most calls are: one buffer, and a ring that has its bytes or its room. Nothing is done in
//! any other case, which is left to [`receiving`](super::receiving) and
//! [`sending`](super::sending): the calls here cost a third less.

use std::slice;
use std::sync::atomic::Ordering;

use levada_ring::{PIECE, Waiter};
use libc::{c_int, iovec};

use super::end::is_look_due;
use crate::connection::{Connection, Inbound, Path, PeerEnd};
use crate::segments::User;
use crate::spin::Look;
use crate::table::Entry;
use crate::{demote, errno, waking};

/// Flags that change nothing but whether the call waits.
const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn only(pieces: &[iovec], flags: c_int) -> Option<&iovec> {
    match pieces {
        [piece] if piece.iov_len > 0 && flags & !FLAGS == 0 => Some(piece),
        _ => None,
    }
}

/// Receives bytes from the ring. Spins for them with `look` if the call may wait. Returns the
/// result of the call, or `None` if the general path has to make it.
pub fn receive(entry: Entry, pieces: &[iovec], flags: c_int, look: &Look<'_>) -> Option<isize> {
    let piece = only(pieces, flags)?;
    let connection = entry.connection;
    loop {
        let received = take(connection, piece)?;
        if received != 0 {
            return Some(received.cast_signed());
        }
        if connection.read_shut.load(Ordering::Relaxed) != 0 {
            return None;
        }
        if flags & libc::MSG_DONTWAIT != 0 || connection.nonblocking.load(Ordering::Relaxed) != 0 {
            return (!is_look_due(connection)).then(|| errno::fail(libc::EAGAIN));
        }
        if !spin_for_bytes(entry, look) {
            return None;
        }
    }
}

/// Takes the bytes of the ring that fit into `piece`. Returns their number, or `None` if the ring
/// may have ended.
#[inline(always)]
fn take(connection: &Connection, piece: &iovec) -> Option<usize> {
    let mut inbound = connection.lock_inbound_quickly()?;
    let is_usual = inbound.path() == Path::Ring
        && !inbound.peer_has_left()
        && !inbound.consumer().is_finished();
    if !is_usual {
        return None;
    }
    // SAFETY: the program promises the kernel that the piece is writable, and this library too.
    let buffer =
        unsafe { slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len.min(PIECE)) };
    let (length, waiter) = inbound.consumer().read(buffer).ok()?;
    if length > 0 {
        inbound.count(length);
    }
    if length == PIECE && piece.iov_len > PIECE {
        return Some(take_rest(inbound, (connection, waiter), piece));
    }
    drop(inbound);
    waking::ring(connection, waiter);
    Some(length)
}

/// Goes on after the first [`PIECE`]. After each, the peer is shown the room: it writes there while
/// this end copies the next. The lock is held: of two threads that read, each gets bytes that follow
/// each other, as from the kernel. Returns the number of all bytes.
#[inline(never)]
fn take_rest(
    mut inbound: Inbound<'_>,
    (connection, waiter): (&Connection, Option<Waiter>),
    piece: &iovec,
) -> usize {
    waking::ring(connection, waiter);
    let mut done = PIECE;
    while done < piece.iov_len && done.is_multiple_of(PIECE) {
        let room = (piece.iov_len - done).min(PIECE);
        // SAFETY: as in `take`. The part has `room` bytes from `done` on, which are within it.
        let buffer =
            unsafe { slice::from_raw_parts_mut(piece.iov_base.cast::<u8>().add(done), room) };
        // A wrong peer is reported by the next call.
        let Ok((length, waiter)) = inbound.consumer().read(buffer) else { break };
        if length == 0 {
            break;
        }
        inbound.count_more(length);
        waking::ring(connection, waiter);
        done += length;
    }
    done
}

/// Spins, without the lock, until a wait for bytes is over, for as long as that is worth its time.
/// Returns true if the wait is over.
#[inline(never)]
pub fn spin_for_bytes(entry: Entry, look: &Look<'_>) -> bool {
    // The segment stays mapped, also if another thread closes the connection.
    let user = User::asleep(entry.number);
    let connection = entry.connection;
    let shares = || connection.shares_processor(&user, PeerEnd::Writer);
    look.until(1, shares, || connection.may_have_bytes(&user))
}

/// Sends all of it by the ring. What the call returns, or `None` if that takes more than this.
pub fn send(entry: Entry, pieces: &[iovec], flags: c_int) -> Option<isize> {
    let piece = only(pieces, flags).filter(|piece| piece.iov_len <= PIECE)?;
    let connection = entry.connection;
    if may_have_lost_its_reader(connection) {
        return None;
    }
    let mut outbound = connection.lock_outbound_quickly()?;
    let is_usual = outbound.path() == Path::Ring && !demote::reader_has_gone(&mut outbound);
    if !is_usual || !outbound.producer().fits(piece.iov_len).ok()? {
        return None;
    }
    // SAFETY: the program promises the kernel that the piece is readable, and this library too.
    let bytes = unsafe { slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
    let length = outbound.producer().push_short(bytes).ok()?;
    outbound.count(length);
    let waiter = outbound.producer().publish();
    drop(outbound);
    waking::ring(connection, waiter);
    Some(length.cast_signed())
}

/// Whether a read or poll(2) has found the end of the peer's stream, or none would show it any
/// more.
pub fn may_have_lost_its_reader(connection: &Connection) -> bool {
    connection.inbound_path() == Path::Back
        || connection.tcp_ended.load(Ordering::Relaxed) != 0
        || connection.read_shut.load(Ordering::Relaxed) != 0
}
