//! Receiving and sending on a connection: which way the bytes go, and the waits.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use levada_ring::records::{Mode, Reason};
use levada_ring::{Corrupt, Half, Sleep, Sleeper, Start, Waiter};
use libc::{c_int, iovec};

use crate::connection::{Connection, Direction, Inbound, Outbound, Path, Phase};
use crate::pieces::{Pieces, Sink};
use crate::table::Entry;
use crate::tcp::{self, Queue};
use crate::{demote, epoll, errno, monitor, pieces, spin, upgrade};

/// How long to sleep before looking at TCP: a killed peer rings no bell.
const SLICE: Duration = Duration::from_secs(1);
/// Between looks, when another thread already sleeps on the same direction.
const CROWDED: Duration = Duration::from_millis(1);
/// Empty reads of a non-blocking connection between two looks at TCP.
const EMPTY_READS: u32 = 256;

/// Flags of calls that a ring has an answer to.
const RECEIVE_FLAGS: c_int = libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_DONTWAIT
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR;

/// What a call on a ring has come to.
enum Outcome {
    /// What the call returns, with the error number set.
    Done(isize),
    /// The direction is not, or no longer, on the ring.
    NotRing,
}

/// Receives into `pieces`. `real` makes the program's own call in the kernel.
pub fn receive(entry: Entry, pieces: &[iovec], flags: c_int, real: impl Fn() -> isize) -> isize {
    if entry.connection.phase() != Phase::Paired {
        return receive_in_kernel(entry, flags, real);
    }
    if flags & !RECEIVE_FLAGS != 0 {
        // Urgent data, or errors: they never come by a ring.
        return real();
    }
    if flags & libc::MSG_WAITALL != 0 && flags & (libc::MSG_PEEK | libc::MSG_DONTWAIT) == 0 {
        return receive_all(entry, pieces, flags & !libc::MSG_WAITALL);
    }
    receive_some(entry, pieces, flags, real)
}

/// MSG_WAITALL, by several calls: one in the kernel would not end when the peer goes on with the ring.
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
            Path::Ring => match receive_from_ring(entry, pieces, flags) {
                Outcome::Done(received) => return received,
                Outcome::NotRing => {}
            },
            Path::Back => return receive_in_kernel(entry, flags, real),
        }
    }
}

/// The program's own call, counted.
pub fn receive_in_kernel(entry: Entry, flags: c_int, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    let in_kernel = &connection.inbound.in_kernel;
    if in_kernel.fetch_add(1, Ordering::SeqCst) > 0 && connection.inbound_path() == Path::Ready {
        // A second thread must not wait in the kernel while bytes may begin to come by the ring.
        if let Some(mut inbound) = connection.lock_inbound()
            && inbound.path() == Path::Ready
            && inbound.consumer().set_ready(false)
        {
            inbound.set_path(Path::Tcp);
        }
    }
    let received = real();
    let saved = errno::last();
    in_kernel.fetch_sub(1, Ordering::SeqCst);
    if let Ok(received @ 1..) = u64::try_from(received) {
        let counters = &connection.record.counters;
        counters.tcp_in.fetch_add(received, Ordering::Relaxed);
        if flags & libc::MSG_PEEK == 0 {
            // For the position at which the ring begins.
            connection.tcp_received.fetch_add(received, Ordering::Relaxed);
        }
        upgrade::after_exchange(entry, upgrade::Exchange::Received, received);
    }
    errno::set(saved);
    received
}

/// Says to the peer that bytes may come by the ring, unless a thread waits in the kernel for them.
fn get_ready(entry: Entry) {
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

/// Receives when the peer may have begun to use the ring. `None` if it has, and everything from TCP is read; or to look again.
fn receive_at_the_start(
    entry: Entry,
    pieces: &[iovec],
    flags: c_int,
    real: &impl Fn() -> isize,
) -> Option<isize> {
    let start = entry.connection.lock_inbound()?.consumer().start();
    if start == Start::None {
        return Some(receive_in_kernel(entry, flags, real));
    }
    if entry.connection.inbound.in_kernel.load(Ordering::SeqCst) > 0 {
        // That thread receives the last message of TCP.
        std::thread::sleep(CROWDED);
        return None;
    }
    // Before a look at TCP, which may have the end of the stream already: the bytes in the ring come before it.
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

/// Fills what the last bytes of TCP have left of the buffers from the ring: a stream has no boundaries.
fn append_from_ring(entry: Entry, pieces: &[iovec], flags: c_int, received: isize) -> isize {
    let mut sink = Sink::after(pieces, received.unsigned_abs());
    let peeks = flags & libc::MSG_PEEK != 0;
    // A peek leaves the bytes in TCP: what it has seen is all of it, if nothing is on its way.
    let follows = if peeks { all_of_tcp_has_come(entry) } else { settle_inbound(entry) };
    if sink.is_full() || flags & libc::MSG_TRUNC != 0 || !follows {
        return received;
    }
    let Some(mut inbound) = entry.connection.lock_inbound() else { return received };
    let waiter = take(&mut inbound, &mut sink, flags).ok().flatten();
    drop(inbound);
    monitor::ring(entry.connection, waiter);
    let more = sink.done() as u64 - received.unsigned_abs() as u64;
    if flags & libc::MSG_PEEK == 0 {
        entry.connection.record.counters.ring_in.fetch_add(more, Ordering::Relaxed);
    }
    append_from_tcp(entry, pieces, flags, sink.done()).cast_signed()
}

/// Whether the bytes behind those of TCP's queue are in the ring.
fn all_of_tcp_has_come(entry: Entry) -> bool {
    let start = entry.connection.lock_inbound().map(|mut inbound| inbound.consumer().start());
    let Some(Start::At(position)) = start else { return false };
    tcp::arrived(entry.fd).is_some_and(|arrived| arrived >= position)
}

/// Takes bytes from the ring, or looks at them, or drops them, as the flags say.
fn take(
    inbound: &mut Inbound<'_>,
    sink: &mut Sink<'_>,
    flags: c_int,
) -> Result<Option<Waiter>, Corrupt> {
    let peeks = flags & libc::MSG_PEEK != 0;
    let mut skip = 0;
    if flags & libc::MSG_TRUNC != 0 {
        let mut scratch = [0; 4096];
        return sink.skip(|length| {
            let scratch = &mut scratch[..length.min(4096)];
            if !peeks {
                return inbound.consumer().read(scratch);
            }
            let length = inbound.consumer().peek(skip, scratch)?;
            skip += length as u64;
            Ok((length, None))
        });
    }
    sink.fill(|piece| {
        if !peeks {
            return inbound.consumer().read(piece);
        }
        let length = inbound.consumer().peek(skip, piece)?;
        skip += length as u64;
        Ok((length, None))
    })
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

/// Moves the inbound direction to the ring, if the peer has begun and everything from TCP is read. Whether it is there.
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
        epoll::moved(entry);
    }
    connection.inbound_path() == Path::Ring
}

fn receive_from_ring(entry: Entry, pieces: &[iovec], flags: c_int) -> Outcome {
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
        let finished = sink.done() == 0 && inbound.consumer().is_finished();
        if finished && inbound.consumer().readable() == Ok(0) {
            inbound.set_path(Path::Back);
            return Outcome::NotRing;
        }
        drop(inbound);
        monitor::ring(connection, waiter);
        if sink.done() > 0 && (!all || sink.is_full()) {
            let received = append_from_tcp(entry, pieces, flags, sink.done());
            return count_received(connection, flags, sink.done(), received);
        }
        if connection.read_shut.load(Ordering::Relaxed) != 0 {
            return Outcome::Done(0);
        }
        if nonblocking {
            if !may_have_ended(connection) || !ended(entry) {
                return Outcome::Done(errno::fail(libc::EAGAIN));
            }
            continue;
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(entry.fd, libc::SO_RCVTIMEO));
        match wait_for_bytes(entry, deadline) {
            Wait::Again => {}
            Wait::Over(_) if sink.done() > 0 => {
                return count_received(connection, flags, sink.done(), sink.done());
            }
            Wait::Over(number) => return Outcome::Done(errno::fail(number)),
        }
    }
}

/// Counts what came by the ring; the call returns all that was received.
fn count_received(connection: &Connection, flags: c_int, by_ring: usize, all: usize) -> Outcome {
    if flags & libc::MSG_PEEK == 0 {
        let counters = &connection.record.counters;
        counters.ring_in.fetch_add(by_ring as u64, Ordering::Relaxed);
        counters.messages.fetch_add(1, Ordering::Relaxed);
    }
    Outcome::Done(all.cast_signed())
}

/// Fills what the last bytes of the ring have left of the buffers from TCP, if the peer has gone on there. The bytes in all.
fn append_from_tcp(entry: Entry, pieces: &[iovec], flags: c_int, done: usize) -> usize {
    if flags & (libc::MSG_PEEK | libc::MSG_TRUNC) != 0 || !leave_finished_ring(entry) {
        return done;
    }
    let rest = pieces::behind(pieces, done);
    // Without bytes there, a call would take an error that belongs to the next one.
    if rest.is_empty() || tcp::queue(entry.fd) != Queue::Bytes {
        return done;
    }
    let more = receive_in_kernel(entry, flags, || tcp::receive_now(entry.fd, &rest, flags));
    done + usize::try_from(more).unwrap_or(0)
}

/// Moves the inbound direction back to TCP if the ring is read to its end.
fn leave_finished_ring(entry: Entry) -> bool {
    let Some(mut inbound) = entry.connection.lock_inbound() else { return false };
    let over = inbound.path() == Path::Ring
        && inbound.consumer().is_finished()
        && inbound.consumer().readable() == Ok(0);
    if over {
        inbound.set_path(Path::Back);
    }
    over
}

/// Whether a look at TCP is due: the kernel has said that the peer's end is closed, or many reads were empty.
fn may_have_ended(connection: &Connection) -> bool {
    connection.tcp_ended.load(Ordering::Relaxed) != 0
        || connection.empty_reads.fetch_add(1, Ordering::Relaxed) % EMPTY_READS == EMPTY_READS - 1
}

/// Looks whether the peer has ended without a word in the ring. The inbound direction is back on TCP then, which says how.
fn ended(entry: Entry) -> bool {
    // After SHUT_RD the kernel shows an end that is none: more bytes may come.
    let shut = entry.connection.read_shut.load(Ordering::Relaxed) != 0;
    if shut || tcp::queue(entry.fd) == Queue::Empty {
        return false;
    }
    let Some(mut inbound) = entry.connection.lock_inbound() else { return true };
    // What the peer wrote before is read first.
    if inbound.consumer().readable() == Ok(0) {
        inbound.set_path(Path::Back);
    }
    true
}

/// How a wait ended.
enum Wait {
    /// The caller looks again.
    Again,
    /// The call fails with this number.
    Over(c_int),
}

/// `None` for a wait without end.
fn deadline_of(fd: c_int, option: c_int) -> Option<Instant> {
    tcp::timeout(fd, option).and_then(|timeout| Instant::now().checked_add(timeout))
}

fn wait_for_bytes(entry: Entry, deadline: Option<Instant>) -> Wait {
    let connection = entry.connection;
    let direction = &connection.inbound;
    let looked = spin::look(&direction.spin, || {
        connection.lock_inbound().is_none_or(|mut inbound| {
            inbound.path() != Path::Ring
                || inbound.consumer().readable() != Ok(0)
                || inbound.consumer().is_finished()
        })
    });
    if looked {
        return Wait::Again;
    }
    let prepare = || {
        let mut inbound =
            connection.lock_inbound().filter(|inbound| inbound.path() == Path::Ring)?;
        let consumer = inbound.consumer();
        (consumer.prepare_sleep(Waiter::Futex) == Ok(true)).then(|| consumer.sleeper())
    };
    let awake = || {
        if let Some(mut inbound) = connection.lock_inbound() {
            inbound.consumer().awake();
        }
    };
    sleep(entry, direction, deadline, prepare, awake)
}

/// Sleeps on a direction, unless `prepare` finds that there is something to do; `awake` follows.
fn sleep(
    entry: Entry,
    direction: &Direction,
    deadline: Option<Instant>,
    prepare: impl FnOnce() -> Option<Sleeper<Half>>,
    awake: impl FnOnce(),
) -> Wait {
    let connection = entry.connection;
    if !claim(&direction.sleeper) {
        return crowded(deadline);
    }
    let wait = prepare().map_or(Wait::Again, |word| {
        let start = Instant::now();
        let (slice, last) = slice_until(deadline);
        let woken = word.sleep(slice, deadline.is_none());
        spin::slept(&direction.spin, start.elapsed());
        connection.record.counters.sleeps.fetch_add(1, Ordering::Relaxed);
        after_sleep(entry, woken, last)
    });
    awake();
    direction.sleeper.store(0, Ordering::Release);
    if connection.holders.load(Ordering::Relaxed) == 0 {
        connection.end(entry.number);
    }
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

fn claim(sleeper: &std::sync::atomic::AtomicU32) -> bool {
    let own = crate::process::thread();
    sleeper.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Another thread sleeps on this direction already.
fn crowded(deadline: Option<Instant>) -> Wait {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Wait::Over(libc::EAGAIN);
    }
    std::thread::sleep(CROWDED);
    Wait::Again
}

/// Sends `pieces`. `real` makes the program's own call in the kernel, and `rest` one for what is left after some bytes.
pub fn send(entry: Entry, pieces: &[iovec], flags: c_int, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    if connection.phase() != Phase::Paired {
        return send_in_kernel(entry, real);
    }
    if flags & !SEND_FLAGS != 0 {
        demote::both(entry, Reason::Unsupported);
        return real();
    }
    match connection.outbound_path() {
        Path::Ring => match send_to_ring(entry, pieces, flags) {
            Outcome::Done(sent) => sent,
            Outcome::NotRing => send_in_kernel(entry, real),
        },
        Path::Tcp => send_last_by_tcp(entry, real),
        _ => send_in_kernel(entry, real),
    }
}

fn send_in_kernel(entry: Entry, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    connection.outbound.in_kernel.fetch_add(1, Ordering::SeqCst);
    let sent = real();
    let saved = errno::last();
    connection.outbound.in_kernel.fetch_sub(1, Ordering::SeqCst);
    if let Ok(sent @ 1..) = u64::try_from(sent) {
        connection.record.counters.tcp_out.fetch_add(sent, Ordering::Relaxed);
        upgrade::after_exchange(entry, upgrade::Exchange::Sent, sent);
    }
    errno::set(saved);
    sent
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
            epoll::moved(entry);
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
    // An end that poll(2) has shown, or one that nothing shows any more.
    let may_be_dead = [&connection.tcp_ended, &connection.read_shut];
    if may_be_dead.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
        demote::forget_dead_reader(entry);
    }
    loop {
        let Some(mut outbound) = connection.lock_outbound() else {
            return Outcome::NotRing;
        };
        if outbound.path() != Path::Ring || demote::reader_has_gone(&mut outbound) {
            return finish_in_kernel(entry, outbound, &mut source, nonblocking);
        }
        let result = source.drain(|piece| outbound.producer().push(piece));
        let waiter = outbound.producer().publish();
        let grown = source.is_left() && grow(&mut outbound);
        drop(outbound);
        if result.is_err() {
            return Outcome::Done(demote::corrupt(entry));
        }
        monitor::ring(connection, waiter);
        if !source.is_left() {
            return count_sent(connection, source.done());
        }
        if grown {
            continue;
        }
        connection.was_full.store(1, Ordering::Relaxed);
        if nonblocking {
            return if source.done() > 0 {
                count_sent(connection, source.done())
            } else {
                demote::forget_dead_reader(entry);
                Outcome::Done(errno::fail(libc::EAGAIN))
            };
        }
        let deadline = *deadline.get_or_insert_with(|| deadline_of(entry.fd, libc::SO_SNDTIMEO));
        match wait_for_room(entry, deadline) {
            Wait::Again => {}
            Wait::Over(_) if source.done() > 0 => return count_sent(connection, source.done()),
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
    monitor::ring(entry.connection, waiter);
    if source.done() == 0 {
        return Outcome::NotRing;
    }
    // The first part is in the ring. A call that may block returns only when all is sent.
    if !nonblocking {
        let _ =
            source.drain(|piece| tcp::send_all(entry.fd, piece).then_some(piece.len()).ok_or(()));
    }
    count_sent(entry.connection, source.done())
}

fn count_sent(connection: &Connection, sent: usize) -> Outcome {
    let counters = &connection.record.counters;
    counters.ring_out.fetch_add(sent as u64, Ordering::Relaxed);
    counters.messages.fetch_add(1, Ordering::Relaxed);
    Outcome::Done(sent as isize)
}

/// A full ring of 64 KiB becomes one of 1 MiB, if there is memory.
fn grow(outbound: &mut Outbound<'_>) -> bool {
    let producer = outbound.producer();
    !producer.is_large() && producer.memory().allocate_large().is_ok() && producer.resize(true)
}

fn wait_for_room(entry: Entry, deadline: Option<Instant>) -> Wait {
    let connection = entry.connection;
    let direction = &connection.outbound;
    let looked = spin::look(&direction.spin, || {
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
    let awake = || {
        if let Some(mut outbound) = connection.lock_outbound() {
            outbound.producer().awake();
        }
    };
    sleep(entry, direction, deadline, prepare, awake)
}

/// sendfile(2) in the kernel, counted as what is sent.
pub fn send_file(entry: Entry, real: impl Fn() -> isize) -> isize {
    match entry.connection.outbound_path() {
        Path::Tcp if entry.connection.phase() == Phase::Paired => send_last_by_tcp(entry, real),
        _ => send_in_kernel(entry, real),
    }
}

/// Whether the next bytes that come are in the ring, or will be.
pub fn is_ring_next(entry: Entry) -> bool {
    entry.connection.phase() == Phase::Paired && settle_inbound(entry)
}
