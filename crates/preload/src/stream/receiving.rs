//! Receiving.

use std::sync::atomic::Ordering;
use std::time::Instant;

use levada_ring::Waiter;
use libc::{c_int, iovec};

use super::end::{append_from_tcp, ended, is_look_due};
use super::kernel::receive_in_kernel;
use super::start::{get_ready, receive_at_the_start, take};
use super::waiting::{Wait, deadline_of, pause, sleep};
use super::{Outcome, quick};
use crate::connection::{Path, Phase};
use crate::pieces::Sink;
use crate::spin::Look;
use crate::table::Entry;
use crate::{demote, direct, errno, pieces, seccomp, tcp, waking};

/// Flags of calls that a ring has an answer to.
const RECEIVE_FLAGS: c_int = libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_DONTWAIT
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;
const PEEK_ALL: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// Receives into `pieces`. `real` makes the program's own call in the kernel.
pub fn receive(entry: Entry, pieces: &[iovec], flags: c_int, real: impl Fn() -> isize) -> isize {
    if direct::is_direct(entry) {
        return direct::receive(entry, pieces, flags);
    }
    if entry.connection.phase() != Phase::Paired {
        return receive_in_kernel(entry, flags, real);
    }
    if flags & !RECEIVE_FLAGS != 0 {
        // Urgent data, or errors: they never come by a ring.
        return real();
    }
    match flags & (libc::MSG_WAITALL | libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        libc::MSG_WAITALL => receive_all(entry, pieces, flags & !libc::MSG_WAITALL),
        PEEK_ALL if matches!(entry.connection.inbound_path(), Path::Tcp | Path::Ready) => {
            peek_all(entry, pieces, flags)
        }
        _ => receive_some(entry, pieces, flags, real),
    }
}

/// MSG_WAITALL, by several calls: one in the kernel would not end when the peer goes on with the
/// ring.
fn receive_all(entry: Entry, pieces: &[iovec], flags: c_int) -> isize {
    let total = Sink::new(pieces).room();
    let mut done = 0;
    loop {
        let rest = pieces::behind(pieces, done);
        let received = receive_some(entry, &rest, flags, || tcp::receive(entry.fd, &rest, flags));
        if received <= 0 {
            return if done > 0 { done.cast_signed() } else { received };
        }
        done += received.unsigned_abs();
        let nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
        if done >= total || nonblocking {
            return done.cast_signed();
        }
    }
}

/// MSG_PEEK with MSG_WAITALL, before the peer goes on with the ring. It leaves the bytes of TCP,
/// which would end every other wait.
fn peek_all(entry: Entry, pieces: &[iovec], flags: c_int) -> isize {
    let total = Sink::new(pieces).room();
    let deadline = deadline_of(entry, libc::SO_RCVTIMEO);
    let some = flags & !libc::MSG_WAITALL;
    loop {
        // Before the look at the bytes, all of which come before the end.
        let is_over = tcp::ready(entry.fd, libc::POLLRDHUP) != 0;
        let seen = receive_some(entry, pieces, some, || tcp::receive(entry.fd, pieces, some));
        let nonblocking = entry.connection.nonblocking.load(Ordering::Relaxed) != 0;
        let is_last = seen <= 0 || seen.unsigned_abs() >= total || is_over || nonblocking;
        if is_last || !pause(deadline) {
            return seen;
        }
    }
}

/// Receives what is there, or comes first.
fn receive_some(entry: Entry, pieces: &[iovec], flags: c_int, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    loop {
        match connection.inbound_path() {
            Path::Tcp => {
                get_ready(entry);
                if connection.inbound_path() == Path::Tcp {
                    return receive_in_kernel(entry, flags, real);
                }
            }
            Path::Ready => {
                if let Some(received) = receive_at_the_start(entry, pieces, flags, &real) {
                    return received;
                }
            }
            Path::Ring => {
                let look = Look::new(&connection.inbound.waits);
                if let Some(received) = quick::receive(entry, pieces, flags, &look) {
                    return received;
                }
                if let Outcome::Done(received) = receive_from_ring(entry, pieces, flags, look) {
                    return received;
                }
            }
            Path::Back => return receive_in_kernel(entry, flags, real),
        }
    }
}

fn receive_from_ring(entry: Entry, pieces: &[iovec], flags: c_int, mut look: Look<'_>) -> Outcome {
    let connection = entry.connection;
    let mut sink = Sink::new(pieces);
    if sink.is_empty() {
        return Outcome::Done(0);
    }
    let nonblocking =
        flags & libc::MSG_DONTWAIT != 0 || connection.nonblocking.load(Ordering::Relaxed) != 0;
    let all = flags & libc::MSG_WAITALL != 0 && !nonblocking;
    let mut deadline = None;
    loop {
        let Some(mut inbound) = connection.lock_inbound() else {
            return Outcome::NotRing;
        };
        if inbound.path() != Path::Ring {
            return if sink.done() > 0 {
                Outcome::Done(sink.done() as isize)
            } else {
                Outcome::NotRing
            };
        }
        if inbound.peer_has_left() && connection.outbound_path() == Path::Ring {
            drop(inbound);
            demote::honour_leave(entry);
            continue;
        }
        if flags & libc::MSG_PEEK != 0 {
            sink = Sink::new(pieces);
        }
        let result = take(&mut inbound, &mut sink, flags);
        let Ok(waiter) = result else {
            drop(inbound);
            return Outcome::Done(demote::corrupt(entry));
        };
        let finished = inbound.consumer().is_finished();
        if finished && sink.done() == 0 && inbound.consumer().readable() == Ok(0) {
            inbound.set_path(Path::Back);
            return Outcome::NotRing;
        }
        drop(inbound);
        waking::ring(connection, waiter);
        if sink.done() > 0 && (!all || sink.is_full() || finished) {
            let received = match finished && !seccomp::is_sealed() {
                true => append_from_tcp(entry, pieces, flags, sink.done()),
                false => sink.done(),
            };
            return Outcome::Done(received.cast_signed());
        }
        if connection.read_shut.load(Ordering::Relaxed) != 0 {
            return Outcome::Done(0);
        }
        if nonblocking {
            if !is_look_due(connection) || !ended(entry) {
                return Outcome::Done(errno::fail(libc::EAGAIN));
            }
            continue;
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(entry, libc::SO_RCVTIMEO));
        if sink.done() > 0 && flags & libc::MSG_PEEK != 0 {
            let is_over = is_look_due(connection) && ended(entry);
            if is_over || !pause(deadline) {
                return Outcome::Done(sink.done().cast_signed());
            }
            continue;
        }
        match wait_for_bytes(entry, &look, deadline) {
            Wait::Again => look = Look::new(&connection.inbound.waits),
            Wait::Over(_) if sink.done() > 0 => return Outcome::Done(sink.done().cast_signed()),
            Wait::Over(number) => return Outcome::Done(errno::fail(number)),
        }
    }
}

/// Waits until the ring has bytes, or the direction has left it.
pub fn wait_for_bytes(entry: Entry, look: &Look<'_>, deadline: Option<Instant>) -> Wait {
    let connection = entry.connection;
    let direction = &connection.inbound;
    if quick::spin_for_bytes(entry, look) {
        return Wait::Again;
    }
    let prepare = || {
        let mut inbound =
            connection.lock_inbound().filter(|inbound| inbound.path() == Path::Ring)?;
        let consumer = inbound.consumer();
        (consumer.prepare_sleep(Waiter::Futex) == Ok(true)).then(|| consumer.sleeper())
    };
    let awake =
        || connection.lock_inbound().and_then(|mut end| end.consumer().awake(Waiter::Futex));
    sleep(entry, (direction, look), deadline, prepare, awake)
}
