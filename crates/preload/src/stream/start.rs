//! Where an inbound ring begins: the last bytes of TCP, and the first ones of the ring.

use std::sync::atomic::Ordering;

use levada_ring::records::Mode;
use levada_ring::{Corrupt, Start, Waiter};
use libc::{c_int, iovec};

use super::end::append_from_tcp;
use super::kernel::receive_in_kernel;
use super::waiting::CROWDED;
use crate::connection::{Inbound, Path, Phase};
use crate::pieces::Sink;
use crate::table::Entry;
use crate::tcp::{self, Queue};
use crate::{direct, errno, pieces, waking};

/// Says to the peer that bytes may come by the ring, unless a thread waits in the kernel for them.
pub fn get_ready(entry: Entry) {
    let connection = entry.connection;
    let Some(mut inbound) = connection.lock_inbound() else { return };
    if inbound.path() == Path::Tcp
        && connection.inbound.in_kernel.load(Ordering::SeqCst) == 0
        && let Some(received) = tcp::received(entry.fd)
    {
        connection.tcp_received.store(received, Ordering::Relaxed);
        inbound.set_path(Path::Ready);
        inbound.consumer().set_ready(true);
    }
}

/// Receives when the peer may have begun to use the ring. `None` if it has, and everything from TCP
/// is read; or to look again.
pub fn receive_at_the_start(
    entry: Entry,
    pieces: &[iovec],
    flags: c_int,
    real: &impl Fn() -> isize,
) -> Option<isize> {
    let mut inbound = entry.connection.lock_inbound()?;
    let start = inbound.consumer().start();
    let has_ended = matches!(start, Start::At(_)) && inbound.consumer().is_finished();
    if has_ended && inbound.consumer().readable() == Ok(0) {
        // The peer has gone back to TCP at once: the ring has carried nothing.
        inbound.set_path(Path::Back);
        return None;
    }
    drop(inbound);
    if start == Start::None {
        return Some(receive_in_kernel(entry, flags, real));
    }
    if entry.connection.inbound.in_kernel.load(Ordering::SeqCst) > 0 {
        // That thread receives the last message of TCP.
        std::thread::sleep(CROWDED);
        return None;
    }
    // Before a look at TCP, which may have the end of the stream already: the bytes in the ring
    // come before it.
    if settle_inbound(entry) {
        return None;
    }
    if start == Start::Pending && tcp::queue(entry.fd) != Queue::Bytes {
        return wait_for_start(entry);
    }
    // Not more than comes before the ring: what comes by TCP after the ring may be there already.
    let before = match start {
        Start::At(position) => {
            position.saturating_sub(entry.connection.tcp_received.load(Ordering::Relaxed))
        }
        _ => u64::MAX,
    };
    let first = pieces::first(pieces, usize::try_from(before).unwrap_or(usize::MAX));
    let received = receive_in_kernel(entry, flags, || tcp::receive_now(entry.fd, &first, flags));
    if received > 0 {
        return Some(append_from_ring(entry, pieces, flags, received));
    }
    if start == Start::Pending {
        return None;
    }
    if received == 0 || errno::last() != libc::EAGAIN {
        return Some(received);
    }
    // The rest is on its way, and comes by TCP.
    Some(receive_in_kernel(entry, flags, || tcp::receive(entry.fd, &first, flags)))
}

/// Fills what the last bytes of TCP have left of the buffers from the ring: a stream has no
/// boundaries.
fn append_from_ring(entry: Entry, pieces: &[iovec], flags: c_int, received: isize) -> isize {
    let mut sink = Sink::after(pieces, received.unsigned_abs());
    let peeks = flags & libc::MSG_PEEK != 0;
    // A peek leaves the bytes in TCP: what it has seen is all of it, if nothing is on its way.
    let follows = if peeks { all_of_tcp_has_come(entry) } else { settle_inbound(entry) };
    if sink.is_full() || !follows {
        return received;
    }
    let Some(mut inbound) = entry.connection.lock_inbound() else { return received };
    let waiter = take(&mut inbound, &mut sink, flags).ok().flatten();
    drop(inbound);
    waking::ring(entry.connection, waiter);
    append_from_tcp(entry, pieces, flags, sink.done()).cast_signed()
}

/// Whether the bytes behind those of TCP's queue are in the ring.
fn all_of_tcp_has_come(entry: Entry) -> bool {
    let start = entry.connection.lock_inbound().map(|mut inbound| inbound.consumer().start());
    let Some(Start::At(position)) = start else { return false };
    tcp::arrived(entry.fd).is_some_and(|arrived| arrived >= position)
}

/// Takes bytes from the ring, or looks at them, or drops them, as the flags say. What is taken is
/// counted.
pub fn take(
    inbound: &mut Inbound<'_>,
    sink: &mut Sink<'_>,
    flags: c_int,
) -> Result<Option<Waiter>, Corrupt> {
    let peeks = flags & libc::MSG_PEEK != 0;
    let before = sink.done();
    let mut skip = 0;
    let next = |piece: &mut [u8]| {
        if !peeks {
            return inbound.consumer().read(piece);
        }
        let length = inbound.consumer().peek(skip, piece)?;
        skip += length as u64;
        Ok((length, None))
    };
    let waiter = match flags & libc::MSG_TRUNC {
        0 => sink.fill(next)?,
        _ => drop_bytes(sink, next)?,
    };
    if !peeks && sink.done() > before {
        inbound.count(sink.done() - before);
    }
    Ok(waiter)
}

/// What [`Sink::fill`] does, without a buffer. Apart, for its buffer would be in the frame of each
/// receive.
#[cold]
#[inline(never)]
fn drop_bytes(
    sink: &mut Sink<'_>,
    mut next: impl FnMut(&mut [u8]) -> Result<(usize, Option<Waiter>), Corrupt>,
) -> Result<Option<Waiter>, Corrupt> {
    let mut scratch = [0; 4096];
    sink.skip(|length| next(&mut scratch[..length.min(4096)]))
}

/// The peer is in a call that ends soon. Should it have been killed there, its stream has ended.
fn wait_for_start(entry: Entry) -> Option<isize> {
    std::thread::yield_now();
    let mut inbound = entry.connection.lock_inbound()?;
    if inbound.consumer().start() == Start::Pending && tcp::queue(entry.fd) == Queue::Ended {
        inbound.set_path(Path::Back);
    }
    None
}

/// Moves the inbound direction to the ring, if the peer has begun and everything from TCP is read.
/// Whether it is there.
pub fn settle_inbound(entry: Entry) -> bool {
    let connection = entry.connection;
    if connection.inbound_path() != Path::Ready {
        return connection.inbound_path() == Path::Ring;
    }
    let Some(mut inbound) = connection.lock_inbound() else { return false };
    let Start::At(position) = inbound.consumer().start() else { return false };
    if inbound.path() == Path::Ready
        && connection.inbound.in_kernel.load(Ordering::SeqCst) == 0
        && connection.tcp_received.load(Ordering::Relaxed) >= position
    {
        inbound.set_path(Path::Ring);
        drop(inbound);
        connection.set_mode(Mode::Ring);
    }
    connection.inbound_path() == Path::Ring
}

/// Whether the next bytes that come are in the ring, or will be, or the last ones before it are on
/// TCP.
pub fn is_ring_next(entry: Entry) -> bool {
    direct::is_direct(entry)
        || entry.connection.phase() == Phase::Paired
            && (settle_inbound(entry) || start_of_ring(entry).is_some())
}

/// At which byte of the stream the ring begins, while bytes before it may come by TCP.
fn start_of_ring(entry: Entry) -> Option<u64> {
    let mut inbound = entry.connection.lock_inbound()?;
    match (inbound.path(), inbound.consumer().start()) {
        (Path::Ready, Start::At(position)) => Some(position),
        _ => None,
    }
}

/// The bytes that can be read from the ring, and whether those of TCP come after or before them.
/// `None` without a ring.
pub fn unread_in_ring(entry: Entry) -> Option<(u64, bool)> {
    if !is_ring_next(entry) {
        return None;
    }
    let mut inbound = entry.connection.lock_inbound()?;
    let finished = inbound.consumer().is_finished();
    let unread = inbound.consumer().readable().unwrap_or(0);
    Some((unread, finished || inbound.path() == Path::Ready))
}
