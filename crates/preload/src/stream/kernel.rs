//! The program's own calls in the kernel, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::connection::{Path, Phase};
use crate::table::Entry;
use crate::{errno, upgrade};

/// The program's own call, counted.
pub fn receive_in_kernel(entry: Entry, flags: c_int, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    if connection.phase() == Phase::Settled {
        return count(real(), &connection.record().counters.tcp_in);
    }
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
        let counters = &connection.record().counters;
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

/// As [`receive_in_kernel`].
pub fn send_in_kernel(entry: Entry, real: impl Fn() -> isize) -> isize {
    let connection = entry.connection;
    if connection.phase() == Phase::Settled {
        return count(real(), &connection.record().counters.tcp_out);
    }
    connection.outbound.in_kernel.fetch_add(1, Ordering::SeqCst);
    let sent = real();
    let saved = errno::last();
    connection.outbound.in_kernel.fetch_sub(1, Ordering::SeqCst);
    if let Ok(sent @ 1..) = u64::try_from(sent) {
        connection.record().counters.tcp_out.fetch_add(sent, Ordering::Relaxed);
        upgrade::after_exchange(entry, upgrade::Exchange::Sent, sent);
    }
    errno::set(saved);
    sent
}

/// Counts what a call has moved, of a connection that stays on TCP.
fn count(moved: isize, counter: &AtomicU64) -> isize {
    if let Ok(moved @ 1..) = u64::try_from(moved) {
        counter.fetch_add(moved, Ordering::Relaxed);
    }
    moved
}
