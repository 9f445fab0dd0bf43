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
    if let Some(listener) = find(entry).filter(|listener| listener.queue.is_open()) {
        listener.queue.open(backlog, entry.number as u16);
    }
}

/// accept(2) has returned a connection of the kernel: the program accepts by functions of libc,
/// which find what is in a queue. Makes one, unless this listener has to do without.
pub fn accepted(fd: c_int) {
    let Some(entry) = table::find(fd).filter(|_| is_on()) else { return };
    let connection = entry.connection;
    let count = connection.calls.fetch_add(1, Ordering::Relaxed) + 1;
    if connection.phase() == Phase::Fresh && count.is_power_of_two() && may_have_queue(entry) {
        open(entry);
    }
}

fn may_have_queue(entry: Entry) -> bool {
    let connection = entry.connection;
    let is_nonblocking = connection.nonblocking.load(Ordering::Relaxed) != 0;
    process::owns_tables()
        && connection.holders.load(Ordering::Relaxed) == 1
        && is_nonblocking == tcp::is_nonblocking(entry.fd)
        && !tcp_only::is_on()
        && !seccomp::is_sealed()
        && !io_uring::is_used()
        && !epoll::is_unsupported(entry)
        && !epoll::is_held_by_several(entry)
        && !tcp::has_unsupported_options(entry.fd)
        && waking::prepare().is_ok()
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
    let Some(place) = ALL.get(entry.number as usize) else { return };
    place.store(std::ptr::from_ref(listener).cast_mut(), Ordering::Release);
    // Before clients know of it: they find it open.
    listener.queue.open(entry.connection.backlog.load(Ordering::Relaxed), entry.number as u16);
    if !entry.connection.advance(Phase::Fresh, Phase::Listening) {
        return listener.queue.close();
    }
    if monitor::listen(entry, &file) {
        // Threads that sleep on it look at the queue from now on.
        epoll::look_again(entry.number);
        waking::ring_all_own();
    } else {
        close(entry);
        entry.connection.advance(Phase::Listening, Phase::Settled);
    }
}

/// Lets no client in any more. The connections that wait are reset, as by the kernel.
pub fn close(entry: Entry) {
    let Some(listener) = find(entry) else { return };
    listener.queue.close();
    while let Some(waiting) = listener.queue.take() {
        if let Some(pair) = pairs::of_client(waiting.client).filter(|pair| pair.enter()) {
            reset(pair, waiting.segment);
        }
    }
    listener.stock.release();
}

/// Resets a connection that no descriptor of this process is for.
pub fn reset(pair: &'static pairs::Pair, number: u8) {
    let segment = pair.segment(number);
    let generation = segment.ends().generation();
    segment.ends().end(Side::Acceptor, End::Reset);
    let waiters = segment.end_all(Side::Acceptor);
    waiters.into_iter().for_each(|waiter| waking::ring_number(pair.peer, waiter));
    pair.end(number, generation, true);
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
