//! The way from a ring back to TCP.

use std::sync::atomic::Ordering;

use levada_ring::Start;
use levada_ring::records::{Mode, Reason};

use crate::connection::{Outbound, Path, Phase};
use crate::table::Entry;
use crate::{direct, epoll, errno, tcp, tcp_only, waking};

/// Bytes that are sent again at a time.
const CHUNK: usize = 16 << 10;

/// Moves both directions back to TCP. What the peer has written into the ring and was not read, it
/// sends again.
pub fn both(entry: Entry, reason: Reason) {
    all(&[entry], reason);
}

/// As [`both`], for several connections. Both ends of one may be among them: all leave their rings
/// before one sends again.
pub fn all(entries: &[Entry], reason: Reason) {
    if reason == Reason::Handed {
        entries.iter().for_each(|entry| {
            entry.connection.is_handed_over.store(1, Ordering::Relaxed);
        });
    }
    entries.iter().for_each(|entry| without_tcp(*entry, reason));
    let used: Vec<bool> = entries.iter().map(|entry| leave_inbound(*entry, reason)).collect();
    for (entry, used) in entries.iter().zip(used) {
        if entry.connection.phase() != Phase::Paired {
            continue;
        }
        outbound(*entry);
        if used {
            entry.connection.note(reason);
        }
        // Also if the rings have ended before: the kernel may not know yet.
        epoll::restore(*entry);
        entry.connection.set_mode(Mode::Kernel);
    }
}

/// A connection that the kernel does not know cannot go back to TCP: calls that bypass this library
/// fail with ENOTCONN. A listener takes no connections by its queue any more.
fn without_tcp(entry: Entry, reason: Reason) {
    match entry.connection.phase() {
        Phase::Direct => entry.connection.note(reason),
        // From now on, the program may use connections in ways that this library does not see.
        Phase::Listening if tcp_only::is_on() => direct::close(entry),
        Phase::Listening => direct::shut(entry),
        // Calls that bypass this library reach the kernel.
        _ if direct::is_on() => direct::claim(entry),
        _ => {}
    }
}

/// Leaves the inbound ring, unless the peer has ended it: then it is read to its end. Whether the
/// connection used a ring.
fn leave_inbound(entry: Entry, reason: Reason) -> bool {
    let connection = entry.connection;
    connection.settle(reason);
    if connection.phase() != Phase::Paired {
        return false;
    }
    let used = connection.uses_ring();
    let mut waiter = None;
    if let Some(mut inbound) = connection.lock_inbound()
        && inbound.path() != Path::Back
        && (inbound.consumer().leave() || inbound.consumer().start() == Start::None)
    {
        inbound.set_path(Path::Back);
        // The peer may wait for space in the ring, which will not come.
        waiter = inbound.consumer().wake_producer();
    }
    waking::ring(connection, waiter);
    used
}

/// Moves the outbound direction back to TCP, and wakes the peer.
pub fn outbound(entry: Entry) {
    let Some(mut outbound) = entry.connection.lock_outbound() else { return };
    let waiter = leave(entry, &mut outbound).or_else(|| outbound.producer().kick());
    drop(outbound);
    waking::ring(entry.connection, waiter);
}

/// Ends the ring of the outbound direction, after what its reader has left there is sent again. The
/// caller rings the bell.
pub fn leave(entry: Entry, outbound: &mut Outbound<'_>) -> Option<levada_ring::Waiter> {
    if outbound.path() == Path::Back {
        return None;
    }
    let left = !outbound.producer().keep_reader();
    if left && outbound.path() == Path::Ring {
        send_again(entry, outbound);
    }
    outbound.set_path(Path::Back);
    // Also of a ring that was never used: the peer sees that this end did not just vanish.
    outbound.producer().finish()
}

fn send_again(entry: Entry, outbound: &mut Outbound<'_>) {
    let mut buffer = [0; CHUNK];
    let mut sent = 0_u64;
    while let Ok(length @ 1..) = outbound.producer().reclaim(sent, &mut buffer) {
        if !tcp::send_all(entry.fd, &buffer[..length]) {
            break;
        }
        sent += length as u64;
        entry.connection.record().counters.tcp_late.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Does what a peer waits for that has left the ring: the outbound direction goes back to TCP, with
/// what the peer has not read. What the peer has written before stays in the ring, and is read to
/// its end.
pub fn honour_leave(entry: Entry) {
    let left = entry.connection.lock_inbound().is_some_and(|inbound| inbound.peer_has_left());
    if left && matches!(entry.connection.outbound_path(), Path::Ring | Path::Tcp) {
        let saved = errno::last();
        entry.connection.note(Reason::Peer);
        outbound(entry);
        errno::set(saved);
    }
}

/// Whether what is written into the ring is read by no one any more.
#[inline]
pub fn reader_has_gone(outbound: &mut Outbound<'_>) -> bool {
    outbound.producer().is_abandoned() || outbound.producer().is_left()
}

/// After the end of the peer's stream, TCP carries what is written next: a peer that is killed
/// leaves no word in the ring, and only the kernel knows whether it still is there. Called when
/// such an end is likely.
pub fn forget_dead_reader(entry: Entry) {
    let connection = entry.connection;
    if connection.outbound_path() != Path::Ring {
        return;
    }
    let finished =
        connection.lock_inbound().is_none_or(|mut inbound| inbound.consumer().is_finished());
    if finished || tcp::peer_has_ended(entry.fd) {
        outbound(entry);
    }
}

/// The peer has written what no correct peer writes: the connection ends. What a call returns.
pub fn corrupt(entry: Entry) -> isize {
    let connection = entry.connection;
    if let Some(inbound) = connection.lock_inbound() {
        inbound.set_path(Path::Back);
    }
    if let Some(outbound) = connection.lock_outbound() {
        outbound.set_path(Path::Back);
    }
    connection.note(Reason::Corrupt);
    connection.set_mode(Mode::Kernel);
    tcp::reset_when_closed(entry.fd);
    // SAFETY: the call takes no addresses.
    unsafe { crate::real::shutdown(entry.fd, libc::SHUT_RDWR) };
    errno::fail(libc::ECONNRESET)
}
