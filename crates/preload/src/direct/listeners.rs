//! Listeners of this process that take connections by queues.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use levada_ring::SEGMENTS;
use levada_ring::queue::Open;
use levada_ring::records::RECORDS;
use libc::c_int;

use super::pool::Pair;
use super::stock::Stock;
use super::{answers, is_on, pairs};
use crate::connection::{Connection, Phase};
use crate::table::{self, Entry};
use crate::{arena, epoll, io_uring, monitor, process, seccomp, tcp, tcp_only, waking};

/// A listener with queues. It is never freed, for a thread may use it.
pub struct Listener {
    /// Its name in the queues of all clients.
    pub name: u32,
    /// Whose duplicates the descriptors of accepted connections are.
    pub stock: Stock,
    /// The port that it listens at.
    pub port: u16,
    /// Connections that were accepted.
    pub accepted: AtomicU32,
}

static ALL: [AtomicPtr<Listener>; RECORDS] = [const { AtomicPtr::new(null_mut()) }; RECORDS];

/// Listeners that a fork has given to this process, by their numbers plus 1. It takes connections of
/// their queues once another process does.
static INHERITED: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

/// The listener with a number, once it has queues.
pub fn find(entry: Entry) -> Option<&'static Listener> {
    if entry.connection.phase() != Phase::Listening {
        return None;
    }
    with_queues(entry.number)
}

fn with_queues(number: u32) -> Option<&'static Listener> {
    // SAFETY: the pointer is null, or of a box that is never freed.
    unsafe { ALL.get(number as usize)?.load(Ordering::Acquire).as_ref() }
}

/// Returns true if a connection of a client waits for a listener.
pub fn has_waiting(entry: Entry) -> bool {
    find(entry).is_some_and(|listener| pairs::has_waiting(listener.name))
}

/// A thread is about to sleep until a bell. See [`pairs::announce`].
pub fn announce(entry: Entry, bell: u8) {
    if let Some(listener) = find(entry) {
        pairs::announce(listener.name, bell);
    }
}

/// listen(2) has succeeded.
pub fn listened(fd: c_int, backlog: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on()) else { return };
    // Negative numbers stand for the largest one.
    let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
    entry.connection.backlog.store(backlog, Ordering::Relaxed);
    // From now on, threads that wait for connections can be woken by a bell, see `open`.
    if !tcp_only::is_on() && !seccomp::is_sealed() && waking::prepare().is_ok() {
        if find(entry).is_none() {
            set(entry.number, null_mut());
        }
        entry.connection.advance(Phase::Fresh, Phase::Listening);
    }
    if let Some(listener) = find(entry).filter(|listener| pairs::is_open(listener.name)) {
        pairs::open(listener.name, opened(entry));
    }
}

/// accept(2) has returned a connection of the kernel: the program accepts by functions of libc,
/// which find what is in a queue. Lets clients use theirs, unless this listener has to do without.
pub fn accepted(fd: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on()) else { return };
    let connection = entry.connection;
    monitor::collect();
    let count = connection.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let has_none = connection.phase() == Phase::Listening && find(entry).is_none();
    if has_none && count.is_power_of_two() && may_have_queues(entry) {
        open(entry);
    }
}

fn may_have_queues(entry: Entry) -> bool {
    let connection = entry.connection;
    let is_nonblocking = connection.nonblocking.load(Ordering::Relaxed) != 0;
    process::owns_tables()
        && connection.is_handed_over.load(Ordering::Relaxed) == 0
        && is_nonblocking == tcp::is_nonblocking(entry.fd)
        && connection.is_special.load(Ordering::Relaxed) == 0
        && !tcp_only::is_on()
        && !seccomp::is_sealed()
        && !io_uring::is_used()
        && !epoll::is_unsupported(entry)
        && !epoll::is_held_by_several(entry)
        && !tcp::has_unsupported_options(entry.fd)
}

/// Returns true for a listener that other processes have, too.
pub fn is_shared(connection: &Connection) -> bool {
    connection.holders.load(Ordering::Relaxed) != 1
        || connection.is_handed_over.load(Ordering::Relaxed) != 0
}

fn open(entry: Entry) {
    let (Some(port), Some(stock)) = (answers::own_port(entry.fd), Stock::of(entry.fd)) else {
        return;
    };
    let Some(name) = pairs::name_listener() else { return };
    let is_known = monitor::listen(entry, name);
    if is_known == Some(true) {
        let listener = Box::new(Listener { name, stock, port, accepted: AtomicU32::new(0) });
        // Before the first client is let in.
        set(entry.number, Box::into_raw(listener));
        pairs::open(name, opened(entry));
        entry.connection.has_queues.store(1, Ordering::Relaxed);
        return;
    }
    pairs::close(name, None);
    if is_known.is_some() && !is_shared(entry.connection) {
        entry.connection.advance(Phase::Listening, Phase::Settled);
    }
}

/// The state that clients see.
fn opened(entry: Entry) -> Open {
    let backlog = entry.connection.backlog.load(Ordering::Relaxed);
    // The kernel has one connection more wait than it was told.
    let backlog = backlog.saturating_add(1).min(SEGMENTS as u32) as u8;
    Open { mark: entry.number as u16, backlog }
}

fn set(number: u32, listener: *mut Listener) {
    if let Some(place) = ALL.get(number as usize) {
        place.store(listener, Ordering::Release);
    }
}

/// Lets no further client in, now and later. The connections that wait can still be accepted.
pub fn shut(entry: Entry) {
    match find(entry) {
        Some(listener) => pairs::shut(listener.name),
        // Else another process may have queues.
        None if !is_shared(entry.connection) => {
            entry.connection.advance(Phase::Listening, Phase::Settled);
        }
        None => {}
    }
}

/// This process no longer takes connections of a listener. Resets those that wait, as the kernel
/// does when a listener ends, unless another process may take them.
pub fn close(entry: Entry) {
    let Some(listener) = find(entry) else { return shut(entry) };
    let is_last = !is_shared(entry.connection);
    close_queues(entry.number, listener, is_last);
    if is_last {
        entry.connection.advance(Phase::Listening, Phase::Settled);
    }
}

/// This process has closed a listener, which others have still.
pub fn leave(entry: Entry) {
    if let Some(listener) = find(entry) {
        close_queues(entry.number, listener, false);
    }
}

/// A listener has ended in all processes.
pub fn end(entry: Entry) {
    match find(entry) {
        Some(listener) => close_queues(entry.number, listener, true),
        None => shut(entry),
    }
    entry.connection.advance(Phase::Listening, Phase::Settled);
}

fn close_queues(number: u32, listener: &Listener, is_last: bool) {
    if !process::owns_tables() {
        return;
    }
    set(number, null_mut());
    pairs::close(listener.name, is_last.then_some(reset));
    monitor::shut(listener.name);
    listener.stock.release();
}

/// Resets a connection that this process has taken.
fn reset(pair: &'static Pair, number: u8, generation: u64) {
    let client = pair.peer_of((number, generation)).unwrap_or(0);
    let waiters = pair.reset(number, generation);
    waiters.into_iter().for_each(|waiter| waking::ring_number(client, waiter));
}

/// In the child of a fork, which has no queues yet.
pub fn in_child() {
    ALL.iter().for_each(|place| place.store(null_mut(), Ordering::Relaxed));
    let numbers = table::numbers(|entry| entry.connection.phase() == Phase::Listening);
    let inherited = numbers.into_iter().map(|number| number + 1).chain(std::iter::repeat(0));
    for (place, number) in INHERITED.iter().zip(inherited) {
        place.store(number, Ordering::Relaxed);
    }
}

/// Returns true if this process may have to take connections by queues, because another one does.
pub fn may_join() -> bool {
    INHERITED.iter().any(|place| place.load(Ordering::Relaxed) != 0)
}

/// Sees what other processes have done with the listeners that they share with this one.
pub fn sweep() {
    for place in &INHERITED {
        let number = place.load(Ordering::Relaxed).checked_sub(1);
        let connection = number.and_then(arena::connection);
        let has_queues = |one: &Connection| one.has_queues.load(Ordering::Relaxed) != 0;
        if connection.is_some_and(has_queues) {
            place.store(0, Ordering::Relaxed);
            let entry = table::entries().find(|entry| Some(entry.number) == number);
            if let Some(entry) = entry.filter(|entry| find(*entry).is_none())
                && entry.connection.phase() == Phase::Listening
                && may_have_queues(entry)
            {
                open(entry);
            }
        }
    }
    // One that another process has ended by shutdown(2).
    for number in pairs::marks() {
        let has_ended = |one: &Connection| one.phase() != Phase::Listening;
        if arena::connection(number).is_some_and(has_ended)
            && let Some(listener) = with_queues(number)
        {
            close_queues(number, listener, true);
        }
    }
}

/// Returns true if all of a connection is as after socket(2).
pub fn is_new(connection: &Connection) -> bool {
    let counters = &connection.record().counters;
    connection.phase() == Phase::Fresh
        && connection.holders.load(Ordering::Relaxed) == 1
        && connection.is_handed_over.load(Ordering::Relaxed) == 0
        && counters.all().all(|counter| counter.load(Ordering::Relaxed) == 0)
}
