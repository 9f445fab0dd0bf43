//! Receiving and sending without TCP underneath.

use std::sync::atomic::Ordering;
use std::time::Instant;

use libc::{c_int, iovec};

use super::ends::{self, bury_if_dead, note_reset, take_error};
use crate::connection::{Connection, Path};
use crate::pieces::{Pieces, Sink};
use crate::spin::Look;
use crate::stream::{self, Wait, deadline_of};
use crate::table::Entry;
use crate::{epoll, errno, memory, spin, waking};

/// Flags of sends that a ring has an answer to.
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_DONTROUTE;

/// The result of a step of a call.
enum Step {
    /// The result of the call.
    Done(isize),
    /// The caller tries again.
    Again,
    /// The call fails with this number, unless it has moved bytes before.
    Failed(c_int),
}

/// Receives into `pieces`.
pub fn receive(entry: Entry, pieces: &[iovec], flags: c_int) -> isize {
    if flags & libc::MSG_OOB != 0 {
        // There is no urgent data.
        return errno::fail(libc::EINVAL);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return errno::fail(libc::EAGAIN);
    }
    let connection = entry.connection;
    let look = Look::new(&connection.inbound.waits);
    if connection.inbound_path() == Path::Ring
        && let Some(received) = stream::receive_quickly(entry, pieces, flags, &look)
    {
        return received;
    }
    let mut sink = Sink::new(pieces);
    if sink.is_empty() {
        return 0;
    }
    let mut look = look;
    let mut deadline = None;
    loop {
        let failure = match receive_step(entry, pieces, &mut sink, flags) {
            Step::Done(received) => return received,
            Step::Failed(number) => Some(number),
            Step::Again => {
                let deadline =
                    *deadline.get_or_insert_with(|| deadline_of(entry, libc::SO_RCVTIMEO));
                let wait = match sink.done() > 0 && flags & libc::MSG_PEEK != 0 {
                    true => wait_behind_peek(entry, deadline),
                    false => stream::wait_for_bytes(entry, &look, deadline),
                };
                match wait {
                    Wait::Again => None,
                    Wait::Over(number) => Some(number),
                }
            }
        };
        look = Look::new(&connection.inbound.waits);
        match failure {
            Some(_) if sink.done() > 0 => return sink.done().cast_signed(),
            Some(number) => return errno::fail(number),
            None => {}
        }
    }
}

/// Takes what is there. `Again` if the call is to wait.
fn receive_step<'a>(entry: Entry, pieces: &'a [iovec], sink: &mut Sink<'a>, flags: c_int) -> Step {
    let connection = entry.connection;
    let is_nonblocking =
        flags & libc::MSG_DONTWAIT != 0 || connection.nonblocking.load(Ordering::Relaxed) != 0;
    let waits_for_all = flags & libc::MSG_WAITALL != 0 && !is_nonblocking;
    if flags & libc::MSG_PEEK != 0 {
        *sink = Sink::new(pieces);
    }
    let Some(mut inbound) = connection.lock_inbound().filter(|one| one.path() == Path::Ring) else {
        return at_the_end(connection, sink);
    };
    // Before the look for bytes: those that came before the end are found.
    let is_finished = inbound.consumer().is_finished();
    let Ok(waiter) = stream::take(&mut inbound, sink, flags) else {
        drop(inbound);
        return Step::Done(ends::corrupt(entry));
    };
    drop(inbound);
    waking::ring(connection, waiter);
    if sink.done() > 0 && (!waits_for_all || sink.is_full() || is_finished) {
        return Step::Done(sink.done().cast_signed());
    }
    if is_finished || connection.read_shut.load(Ordering::Relaxed) != 0 {
        return at_the_end(connection, sink);
    }
    if !is_nonblocking {
        return Step::Again;
    }
    if connection.looked.swap(spin::ticks(), Ordering::Relaxed) != spin::ticks()
        && bury_if_dead(entry)
    {
        return receive_step(entry, pieces, sink, flags);
    }
    Step::Failed(libc::EAGAIN)
}

fn wait_behind_peek(entry: Entry, deadline: Option<Instant>) -> Wait {
    let looked = &entry.connection.looked;
    if looked.swap(spin::ticks(), Ordering::Relaxed) != spin::ticks() {
        bury_if_dead(entry);
    }
    if stream::pause(deadline) { Wait::Again } else { Wait::Over(libc::EAGAIN) }
}

/// No more bytes come: the pending error, once, or the end of the stream.
fn at_the_end(connection: &Connection, sink: &Sink<'_>) -> Step {
    if sink.done() > 0 {
        return Step::Done(sink.done().cast_signed());
    }
    note_reset(connection);
    connection.has_read_end.store(1, Ordering::Relaxed);
    if connection.error.load(Ordering::Relaxed) == libc::EPIPE.unsigned_abs() {
        // The stream had ended before the reset, which a send finds.
        return Step::Done(0);
    }
    take_error(connection).map_or(Step::Done(0), Step::Failed)
}

/// Sends `pieces`.
pub fn send(entry: Entry, pieces: &[iovec], flags: c_int) -> isize {
    let connection = entry.connection;
    if flags & !SEND_FLAGS != 0 {
        // Urgent data, and what the kernel alone can do.
        connection.note(levada_ring::records::Reason::Unsupported);
        return errno::fail(libc::EOPNOTSUPP);
    }
    // A program that only sends never waits: it would not find that its peer was killed.
    super::sweep();
    if connection.has_read_end.load(Ordering::Relaxed) != 0 {
        // After the end of its stream, the peer may have been killed.
        bury_if_dead(entry);
    }
    if let Some(failed) = cannot_send(connection, flags) {
        return failed;
    }
    if let Some(sent) = stream::send_quickly(entry, pieces, flags) {
        return sent;
    }
    let mut source = Pieces::new(pieces);
    if source.is_empty() {
        return 0;
    }
    let mut deadline = None;
    loop {
        let failure = match send_step(entry, &mut source, flags) {
            Step::Done(sent) => return sent,
            Step::Failed(number) => Some(number),
            Step::Again => {
                let deadline =
                    *deadline.get_or_insert_with(|| deadline_of(entry, libc::SO_SNDTIMEO));
                match stream::wait_for_room(entry, deadline) {
                    Wait::Again => None,
                    Wait::Over(number) => Some(number),
                }
            }
        };
        match failure {
            Some(_) if source.done() > 0 => return source.done().cast_signed(),
            Some(number) => return errno::fail(number),
            None => {}
        }
        let has_failed = cannot_send(connection, flags | libc::MSG_NOSIGNAL);
        if has_failed.is_some() && source.done() > 0 {
            return source.done().cast_signed();
        }
        if let Some(failed) = has_failed {
            return broken(connection, errno::last(), flags, failed);
        }
    }
}

/// The result of a call if the peer has reset the connection, or this end is shut.
fn cannot_send(connection: &Connection, flags: c_int) -> Option<isize> {
    let is_shut = connection.write_shut.load(Ordering::Relaxed) != 0;
    if is_shut {
        note_reset(connection);
    } else if connection.is_gone.load(Ordering::Relaxed) == 0 {
        // A reset shows in the ring, too.
        let is_abandoned = connection
            .lock_outbound_quickly()
            .is_some_and(|mut outbound| outbound.producer().is_abandoned());
        if !is_abandoned {
            return None;
        }
        note_reset(connection);
        if connection.is_gone.load(Ordering::Relaxed) == 0 {
            return None;
        }
    }
    let number = take_error(connection).unwrap_or(libc::EPIPE);
    Some(broken(connection, number, flags, -1))
}

fn broken(_connection: &Connection, number: c_int, flags: c_int, failed: isize) -> isize {
    if number == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: the call takes no addresses; the signal is for this thread, as the kernel's.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    errno::set(number);
    failed
}

/// Writes what there is room for. `Again` if the call is to wait.
fn send_step(entry: Entry, source: &mut Pieces<'_>, flags: c_int) -> Step {
    let connection = entry.connection;
    let is_nonblocking =
        flags & libc::MSG_DONTWAIT != 0 || connection.nonblocking.load(Ordering::Relaxed) != 0;
    let Some(mut outbound) = connection.lock_outbound().filter(|one| one.path() == Path::Ring)
    else {
        return Step::Failed(libc::EPIPE);
    };
    if outbound.producer().is_abandoned() {
        drop(outbound);
        return answered_by_a_reset(connection, source, flags);
    }
    let before = source.done();
    let result = source.drain(|piece| outbound.producer().push(piece));
    if source.done() > before {
        outbound.count(source.done() - before);
    }
    let waiter = outbound.producer().publish();
    let has_grown = source.is_left() && memory::grow(connection, &mut outbound);
    drop(outbound);
    if result.is_err() {
        return Step::Done(ends::corrupt(entry));
    }
    waking::ring(connection, waiter);
    if !source.is_left() {
        return Step::Done(source.done().cast_signed());
    }
    if has_grown {
        return send_step(entry, source, flags);
    }
    if connection.was_full.swap(1, Ordering::Relaxed) == 0 {
        epoll::look_again(entry.number);
    }
    if !is_nonblocking {
        return Step::Again;
    }
    bury_if_dead(entry);
    Step::Failed(libc::EAGAIN)
}

/// The peer has closed its end: TCP takes the bytes, and the peer answers with a reset.
fn answered_by_a_reset(connection: &Connection, source: &mut Pieces<'_>, flags: c_int) -> Step {
    note_reset(connection);
    if let Some(number) = take_error(connection) {
        return Step::Failed(number);
    }
    let has_ended =
        connection.lock_inbound().is_some_and(|mut inbound| inbound.consumer().is_finished());
    // With MSG_MORE, they are not sent yet.
    if flags & libc::MSG_MORE == 0 {
        let error = if has_ended { libc::EPIPE } else { libc::ECONNRESET };
        ends::reset_both(connection, error);
    }
    let _ = source.drain(|piece| Ok::<_, ()>(piece.len()));
    Step::Done(source.done().cast_signed())
}
