//! Listeners of this process that take connections by a queue.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use levada_ring::ends::End;
use levada_ring::records::RECORDS;
use levada_ring::{Queue, Side};
use libc::c_int;

use super::stock::Stock;
use super::{answers, is_on, pairs};
use crate::connection::{Connection, Phase};
use crate::lock::Lock;
use crate::table::{self, Entry};
use crate::{epoll, io_uring, monitor, process, seccomp, tcp, tcp_only, waking};

/// A listener with a queue. It is never freed, for a thread may use it.
pub struct Listener {
    /// The connections that wait.
    pub queue: Queue,
    /// Whose duplicates the descriptors of accepted connections are.
    pub stock: Stock,
    /// Held while a thread accepts from the kernel: no other one takes what that thread has seen.
    pub in_kernel: Lock,
    /// The port that it listens at.
    pub port: u16,
    /// Connections that were accepted.
    pub accepted: AtomicU32,
}

/// Queues that a process makes; further listeners go by the kernel.
const MAX: usize = 1024;

static ALL: [AtomicPtr<Listener>; RECORDS] = [const { AtomicPtr::new(null_mut()) }; RECORDS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static QUEUES: AtomicUsize = AtomicUsize::new(0);

/// The listener with a number, once it has a queue.
pub fn find(entry: Entry) -> Option<&'static Listener> {
    if entry.connection.phase() != Phase::Listening {
        return None;
    }
    // SAFETY: the pointer is null, or that of a box that is never freed.
    unsafe { ALL.get(entry.number as usize)?.load(Ordering::Acquire).as_ref() }
}

/// Returns true if a connection waits in the queue of a listener.
pub fn has_entry(entry: Entry) -> bool {
    find(entry).is_some_and(|listener| listener.queue.has_entry())
}

/// A thread is about to sleep until a bell. See [`Queue`].
pub fn announce(entry: Entry, bell: u8) {
    if let Some(listener) = find(entry) {
        listener.queue.announce(bell);
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
    if let Some(listener) = find(entry).filter(|listener| listener.queue.is_open()) {
        listener.queue.open(backlog, entry.number as u16);
    }
}

/// accept(2) has returned a connection of the kernel: the program accepts by functions of libc,
/// which find what is in a queue. Makes one, unless this listener has to do without.
pub fn accepted(fd: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on()) else { return };
    let connection = entry.connection;
    monitor::collect();
    let count = connection.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let has_none = connection.phase() == Phase::Listening && find(entry).is_none();
    if has_none && count.is_power_of_two() && may_have_queue(entry) {
        open(entry);
    }
}

fn may_have_queue(entry: Entry) -> bool {
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
    if COUNT.fetch_add(1, Ordering::Relaxed) >= MAX {
        COUNT.store(MAX, Ordering::Relaxed);
        return;
    }
    let Some(port) = answers::own_port(entry.fd) else { return };
    let (Ok((file, queue)), Some(stock)) = (Queue::create(), Stock::of(entry.fd)) else { return };
    let listener: &'static Listener = Box::leak(Box::new(Listener {
        queue,
        stock,
        in_kernel: Lock::new(),
        port,
        accepted: AtomicU32::new(0),
    }));
    set(entry, std::ptr::from_ref(listener).cast_mut());
    // Before clients know of it: they find it open.
    listener.queue.open(entry.connection.backlog.load(Ordering::Relaxed), entry.number as u16);
    let is_known = monitor::listen(entry, &file);
    QUEUES.fetch_add(1, Ordering::Relaxed);
    match is_known {
        Some(true) => {
            // A fork since the first look has closed no queue.
            if is_shared(entry.connection) {
                listener.queue.close();
            }
            // Threads that sleep on it look at the queue from now on.
            epoll::look_again(entry.number);
            waking::ring_all_own();
        }
        Some(false) => close(entry),
        // Another thread asks the monitor just now: a later call tries again.
        None => {
            listener.queue.close();
            set(entry, null_mut());
            QUEUES.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn set(entry: Entry, listener: *mut Listener) {
    if let Some(place) = ALL.get(entry.number as usize) {
        place.store(listener, Ordering::Release);
    }
}

/// Lets no further client in, now and later. The connections that wait can still be accepted.
pub fn shut(entry: Entry) {
    match find(entry) {
        Some(listener) => listener.queue.close(),
        // Else another process may have a queue.
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
    while let Some((waiting, pair)) = pairs::take(|| listener.queue.take()) {
        if let Some(pair) = pair {
            reset(pair, waiting.segment);
        }
    }
    listener.stock.release();
    QUEUES.fetch_sub(1, Ordering::Relaxed);
    entry.connection.advance(Phase::Listening, Phase::Settled);
}

/// Queues of this process that may have entries.
pub fn count() -> usize {
    QUEUES.load(Ordering::Relaxed)
}

/// Returns true if a connection waits in any queue.
pub fn has_any_entry() -> bool {
    count() > 0 && table::entries().any(has_entry)
}

/// Resets a connection that no descriptor of this process is for.
pub fn reset(pair: &'static super::Pair, number: u8) {
    let Some(generation) = pair.accept(number) else { return pair.leave() };
    let segment = pair.segment(number);
    segment.ends().end(Side::Acceptor, End::Reset);
    let waiters = segment.end_all(Side::Acceptor);
    waiters.into_iter().for_each(|waiter| waking::ring_number(pair.peer, waiter));
    pair.end(number, generation, true);
}

/// In the child of a fork: what waits in the queues, its parent accepts.
pub fn in_child() {
    ALL.iter().for_each(|place| place.store(null_mut(), Ordering::Relaxed));
    QUEUES.store(0, Ordering::Relaxed);
}

/// A fork follows: the listeners would be those of two processes. What waits, this one accepts.
pub fn before_fork() {
    for entry in table::entries() {
        if let Some(listener) = find(entry) {
            listener.queue.close();
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
