//! A process under seccomp(2), whose filter may end it for a system call that it does not make
//! itself.
//!
//! Under a filter from the start, all connections stay on TCP, unless the user trusts the filter.
//! When the program sets one up, its connections go back to TCP before that: the outbound direction
//! at its present byte, the inbound one after the bytes that are in the ring, which are read from
//! memory. After that, this library makes no system call that the program does not make, except
//! write(2) to an eventfd.

use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};

use levada_ring::Start;
use levada_ring::records::{Mode, Reason};

use crate::connection::{Connection, Path, Phase};
use crate::table::{self, Entry};
use crate::{demote, direct, epoll, settings, tcp_only, waking};

static IS_SEALED: AtomicU32 = AtomicU32::new(0);

/// Returns true once the program has set up a filter.
#[inline]
pub fn is_sealed() -> bool {
    IS_SEALED.load(Ordering::Relaxed) != 0
}

/// Returns true if the process has a filter already. By the calls that have loaded this library:
/// prctl(2) may be one that the filter forbids.
pub fn has_filter() -> bool {
    let mut status = Vec::with_capacity(4096);
    let read =
        std::fs::File::open("/proc/self/status").map(|mut file| file.read_to_end(&mut status));
    if read.is_err() {
        return false;
    }
    let mut lines = status.split(|byte| *byte == b'\n');
    let mode = lines.find_map(|line| line.strip_prefix(b"Seccomp:"));
    mode.is_some_and(|mode| mode.trim_ascii() != b"0")
}

/// The program is about to set up a filter.
pub fn before_filter() {
    if settings::socket().is_none() || IS_SEALED.load(Ordering::Relaxed) != 0 {
        return;
    }
    // Threads of later calls are not asked for their numbers.
    crate::process::thread();
    tcp_only::set();
    let all: Vec<Entry> = table::entries().collect();
    all.iter().for_each(|entry| leave(*entry));
    waking::ring_all_own();
    settings::turn_off();
    IS_SEALED.store(1, Ordering::SeqCst);
    // Calls on all others are those of the kernel from now on.
    for entry in all.iter().filter(|entry| !has_unread(**entry)) {
        table::remove(entry.fd);
    }
    epoll::forget(|entry| !has_unread(entry));
}

/// Moves a connection back to TCP. Bytes in its inbound ring stay there.
fn leave(entry: Entry) {
    let connection = entry.connection;
    match connection.phase() {
        // It needs calls that a filter may forbid.
        Phase::Direct => return direct::goodbye(entry),
        Phase::Listening => return direct::close(entry),
        _ => {}
    }
    connection.settle(Reason::Unsupported);
    if leave_inbound(connection) {
        demote::outbound(entry);
    } else {
        demote::both(entry, Reason::Unsupported);
    }
    if connection.inbound_path() == Path::Ring {
        // Read from memory from now on. An empty ring that the peer has ended is left as well.
        if !has_unread(entry)
            && let Some(inbound) = connection.lock_inbound()
        {
            inbound.set_path(Path::Back);
        }
        epoll::restore_in_kernel(entry);
        connection.note(Reason::Unsupported);
        connection.set_mode(Mode::Kernel);
    }
}

/// Leaves the inbound ring with the bytes that are in it. Returns true if some are.
fn leave_inbound(connection: &Connection) -> bool {
    let Some(mut inbound) = connection.lock_inbound() else { return false };
    let mut has_bytes = false;
    let mut waiter = None;
    match inbound.path() {
        Path::Ring => {
            has_bytes = inbound.consumer().leave_with_shown() == Ok(true);
            waiter = inbound.consumer().wake_producer();
        }
        Path::Ready if inbound.consumer().start() == Start::None => inbound.set_path(Path::Back),
        _ => {}
    }
    drop(inbound);
    waking::ring(connection, waiter);
    has_bytes
}

/// Returns true if bytes of a ring that was left are still to be read.
pub fn has_unread(entry: Entry) -> bool {
    entry.connection.inbound_path() == Path::Ring
        && !direct::is_direct(entry)
        && entry
            .connection
            .lock_inbound()
            .is_some_and(|mut inbound| inbound.consumer().readable().is_ok_and(|bytes| bytes > 0))
}
