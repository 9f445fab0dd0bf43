//! Listeners of this process that take connections by queues.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use levada_ring::SEGMENTS;
use levada_ring::queue::Open;
use levada_ring::records::RECORDS;
use libc::c_int;

use super::stock::Stock;
use super::{answers, is_on, pairs};
use crate::connection::{Connection, Phase};
use crate::lock::Lock;
use crate::table::{self, Entry};
use crate::{epoll, io_uring, monitor, process, seccomp, tcp, tcp_only, waking};

/// A listener with queues. It is never freed, for a thread may use it.
pub struct Listener {
    /// Its name in the queues of all clients.
    pub name: u32,
    /// Whose duplicates the descriptors of accepted connections are.
    pub stock: Stock,
    /// Held while a thread accepts from the kernel: no other one takes what that thread has seen.
    pub in_kernel: Lock,
    /// The port that it listens at.
    pub port: u16,
    /// Connections that were accepted.
    pub accepted: AtomicU32,
}

static ALL: [AtomicPtr<Listener>; RECORDS] = [const { AtomicPtr::new(null_mut()) }; RECORDS];

/// The listener with a number, once it has queues.
pub fn find(entry: Entry) -> Option<&'static Listener> {
    if entry.connection.phase() != Phase::Listening {
        return None;
    }
    // SAFETY: the pointer is null, or that of a box that is never freed.
    unsafe { ALL.get(entry.number as usize)?.load(Ordering::Acquire).as_ref() }
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
            set(entry, null_mut());
        }
        entry.connection.advance(Phase::Fresh, Phase::Listening);
    }
    if let Some(listener) = find(entry).filter(|listener| pairs::is_open(listener.name)) {
        let_in(entry, listener.name);
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
        && !is_shared(connection)
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
        let in_kernel = Lock::new();
        let accepted = AtomicU32::new(0);
        let listener = Box::new(Listener { name, stock, in_kernel, port, accepted });
        // Before the first client is let in.
        set(entry, Box::into_raw(listener));
        if let_in(entry, name) {
            return;
        }
        set(entry, null_mut());
    }
    pairs::forget_listener(name);
    if is_known.is_some() {
        entry.connection.advance(Phase::Listening, Phase::Settled);
    }
}

/// Lets clients in, unless another process has the listener, too.
fn let_in(entry: Entry, name: u32) -> bool {
    let backlog = entry.connection.backlog.load(Ordering::Relaxed);
    // The kernel has one connection more wait than it was told.
    let backlog = backlog.saturating_add(1).min(SEGMENTS as u32) as u8;
    let listener = Open { name, mark: entry.number as u16, backlog };
    pairs::open(listener, || is_shared(entry.connection))
}

fn set(entry: Entry, listener: *mut Listener) {
    if let Some(place) = ALL.get(entry.number as usize) {
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

/// As [`shut`], and resets the connections that wait, as the kernel does when a listener ends.
pub fn close(entry: Entry) {
    shut(entry);
    let Some(listener) = find(entry) else { return };
    while let Some((pair, number, generation)) = pairs::take(listener.name) {
        let waiters = pair.reset(number, generation);
        waiters.into_iter().for_each(|waiter| waking::ring_number(pair.peer(), waiter));
    }
    pairs::forget_listener(listener.name);
    if process::owns_tables() {
        monitor::shut(listener.name);
    }
    listener.stock.release();
    entry.connection.advance(Phase::Listening, Phase::Settled);
}

/// In the child of a fork: what waits, its parent accepts.
pub fn in_child() {
    ALL.iter().for_each(|place| place.store(null_mut(), Ordering::Relaxed));
}

/// Returns true if all of a connection is as after socket(2).
pub fn is_new(connection: &Connection) -> bool {
    let counters = &connection.record().counters;
    connection.phase() == Phase::Fresh
        && connection.holders.load(Ordering::Relaxed) == 1
        && connection.is_handed_over.load(Ordering::Relaxed) == 0
        && counters.all().all(|counter| counter.load(Ordering::Relaxed) == 0)
}
