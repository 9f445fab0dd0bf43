//! Sending.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use levada_ring::Waiter;
use levada_ring::records::{Mode, Reason};
use libc::{c_int, iovec};

use super::kernel::send_in_kernel;
use super::waiting::{Wait, deadline_of, sleep};
use super::{Outcome, quick};
use crate::connection::{Outbound, Path, PeerEnd, Phase};
use crate::pieces::Pieces;
use crate::segments::User;
use crate::spin::Look;
use crate::table::Entry;
use crate::{demote, direct, epoll, errno, memory, tcp, waking};

const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;

/// Sends `pieces`. `real` makes the program's own call in the kernel.
pub fn send(entry: Entry, pieces: &[iovec], flags: c_int, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    if direct::is_direct(entry) {
        return direct::send(entry, pieces, flags);
    }
    if flags & libc::MSG_OOB != 0 {
        // What FIONREAD and recv(2) count ends at the mark of urgent data, so the peer could not
        // tell where its ring begins.
        connection.settle(Reason::Unsupported);
    }
    if connection.phase() != Phase::Paired {
        if flags & libc::MSG_FASTOPEN != 0 && direct::is_on() {
            direct::claim(entry);
        }
        return send_in_kernel(entry, real);
    }
    if flags & !SEND_FLAGS != 0 {
        demote::both(entry, Reason::Unsupported);
        return real();
    }
    match connection.outbound_path() {
        Path::Ring => match quick::send(entry, pieces, flags) {
            Some(sent) => sent,
            None => match send_to_ring(entry, pieces, flags) {
                Outcome::Done(sent) => sent,
                Outcome::NotRing => send_in_kernel(entry, real),
            },
        },
        Path::Tcp => send_last_by_tcp(entry, real),
        _ => send_in_kernel(entry, real),
    }
}

/// Sends by TCP and, if the peer is ready, continues with the ring.
fn send_last_by_tcp(entry: Entry, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    let Some(mut outbound) = connection.lock_outbound() else {
        return send_in_kernel(entry, real);
    };
    fence(Ordering::SeqCst);
    let begins = outbound.path() == Path::Tcp
        && connection.outbound.in_kernel.load(Ordering::SeqCst) == 0
        && outbound.producer().is_ready()
        && outbound.producer().begin_start();
    if !begins {
        drop(outbound);
        return send_in_kernel(entry, real);
    }
    let sent = send_in_kernel(entry, real);
    let saved = errno::last();
    match tcp::sent(entry.fd) {
        Some(position) if sent > 0 => {
            outbound.producer().start_at(position);
            outbound.set_path(Path::Ring);
            drop(outbound);
            connection.set_mode(Mode::Ring);
        }
        _ => outbound.producer().cancel_start(),
    }
    errno::set(saved);
    sent
}

fn send_to_ring(entry: Entry, pieces: &[iovec], flags: c_int) -> Outcome {
    let connection = entry.connection;
    let mut source = Pieces::new(pieces);
    if source.is_empty() {
        return Outcome::Done(0);
    }
    let nonblocking =
        flags & libc::MSG_DONTWAIT != 0 || connection.nonblocking.load(Ordering::Relaxed) != 0;
    let mut deadline = None;
    if quick::may_have_lost_its_reader(connection) {
        demote::forget_dead_reader(entry);
    }
    loop {
        let Some(mut outbound) = connection.lock_outbound() else {
            return Outcome::NotRing;
        };
        if outbound.path() != Path::Ring || demote::reader_has_gone(&mut outbound) {
            return finish_in_kernel(entry, outbound, &mut source, nonblocking);
        }
        let before = source.done();
        let result = source.drain(|piece| outbound.producer().push(piece));
        if source.done() > before {
            outbound.count(source.done() - before);
        }
        let waiter = outbound.producer().publish();
        let grown = source.is_left() && memory::grow(connection, &mut outbound);
        drop(outbound);
        if result.is_err() {
            return Outcome::Done(demote::corrupt(entry));
        }
        waking::ring(connection, waiter);
        if !source.is_left() {
            return Outcome::Done(source.done().cast_signed());
        }
        if grown {
            continue;
        }
        if connection.was_full.swap(1, Ordering::Relaxed) == 0 {
            epoll::look_again(entry.number);
        }
        if nonblocking {
            return if source.done() > 0 {
                Outcome::Done(source.done().cast_signed())
            } else {
                demote::forget_dead_reader(entry);
                Outcome::Done(errno::fail(libc::EAGAIN))
            };
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(entry, libc::SO_SNDTIMEO));
        match wait_for_room(entry, deadline) {
            Wait::Again => {}
            Wait::Over(_) if source.done() > 0 => {
                return Outcome::Done(source.done().cast_signed());
            }
            Wait::Over(number) => return Outcome::Done(errno::fail(number)),
        }
    }
}

/// The reader has gone, or the direction was moved back to TCP: the rest goes there.
fn finish_in_kernel(
    entry: Entry,
    mut outbound: Outbound<'_>,
    source: &mut Pieces<'_>,
    nonblocking: bool,
) -> Outcome {
    let waiter = demote::leave(entry, &mut outbound);
    drop(outbound);
    waking::ring(entry.connection, waiter);
    if source.done() == 0 {
        return Outcome::NotRing;
    }
    // The first part is in the ring. A call that may block returns only when all is sent.
    if !nonblocking {
        let _ =
            source.drain(|piece| tcp::send_all(entry.fd, piece).then_some(piece.len()).ok_or(()));
    }
    Outcome::Done(source.done().cast_signed())
}

/// Waits until the ring has room, or the direction has left it.
pub fn wait_for_room(entry: Entry, deadline: Option<Instant>) -> Wait {
    let connection = entry.connection;
    let direction = &connection.outbound;
    let look = Look::new(&direction.waits);
    let shares = || connection.shares_processor(&User::asleep(entry.number), PeerEnd::Reader);
    let looked = look.until(1, shares, || {
        connection.lock_outbound().is_none_or(|mut outbound| {
            outbound.path() != Path::Ring
                || outbound.producer().room() != Ok(0)
                || demote::reader_has_gone(&mut outbound)
        })
    });
    if looked {
        return Wait::Again;
    }
    let prepare = || {
        let mut outbound =
            connection.lock_outbound().filter(|outbound| outbound.path() == Path::Ring)?;
        let producer = outbound.producer();
        let sleeps = !producer.is_left() && producer.prepare_sleep(Waiter::Futex) == Ok(true);
        sleeps.then(|| producer.sleeper())
    };
    let awake =
        || connection.lock_outbound().and_then(|mut end| end.producer().awake(Waiter::Futex));
    sleep(entry, (direction, &look), deadline, prepare, awake)
}

/// sendfile(2) in the kernel, counted as what is sent.
pub fn send_file(entry: Entry, real: impl Fn() -> isize) -> isize {
    match entry.connection.outbound_path() {
        Path::Tcp if entry.connection.phase() == Phase::Paired => send_last_by_tcp(entry, real),
        _ => send_in_kernel(entry, real),
    }
}
