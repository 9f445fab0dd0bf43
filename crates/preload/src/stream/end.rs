//! Where an inbound ring ends: the last bytes of the ring, and what TCP has after them.

use std::sync::atomic::Ordering;

use libc::{c_int, iovec};

use super::kernel::receive_in_kernel;
use crate::connection::{Connection, Path};
use crate::table::Entry;
use crate::tcp::{self, Queue};
use crate::{pieces, spin};

/// Fills what the last bytes of the ring have left of the buffers from TCP, if the peer has gone on
/// there. The bytes in all.
pub fn append_from_tcp(entry: Entry, pieces: &[iovec], flags: c_int, done: usize) -> usize {
    let peeks = flags & libc::MSG_PEEK != 0;
    // A peek leaves the bytes in the ring: what it has seen may be all of them.
    let over = if peeks { is_read_out(entry, done as u64) } else { leave_finished_ring(entry) };
    if !over {
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

/// Whether the ring ends behind this many bytes.
fn is_read_out(entry: Entry, bytes: u64) -> bool {
    entry.connection.lock_inbound().is_some_and(|mut inbound| {
        inbound.path() == Path::Ring
            && inbound.consumer().is_finished()
            && inbound.consumer().readable() == Ok(bytes)
    })
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

/// Whether a look at TCP is due after an empty read: the kernel has said that the peer's end is
/// closed, or the last look was some time ago. A program that reads without a pause looks a few
/// hundred times a second.
pub fn is_look_due(connection: &Connection) -> bool {
    connection.looked.load(Ordering::Relaxed) != spin::ticks()
        || connection.tcp_ended.load(Ordering::Relaxed) != 0
}

/// Looks whether the peer has ended without a word in the ring. The inbound direction is back on
/// TCP then, which says how.
pub fn ended(entry: Entry) -> bool {
    entry.connection.looked.store(spin::ticks(), Ordering::Relaxed);
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
