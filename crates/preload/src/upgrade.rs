//! When a connection is offered to the monitor: a short one never is.

use std::sync::atomic::Ordering;

use levada_ring::records::Reason;

use crate::connection::{Connection, Phase};
use crate::monitor::Offered;
use crate::table::Entry;
use crate::{epoll, history, io_uring, monitor, tcp, tcp_only};

/// What a call has done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Bytes were sent.
    Sent,
    /// Bytes were received.
    Received,
}

/// The direction of a connection has changed so often when its second exchange begins.
const SECOND_EXCHANGE: u32 = 2;
/// A connection that has carried as much is offered without a second exchange.
const MANY_BYTES: u64 = 64 << 10;
/// The changes of direction before the second offer, if the first has failed. Before each further
/// one, they are 16 times as many, and so are the bytes.
const AFTER_REFUSAL: u32 = 128;
/// Failed offers from which on the numbers stay as they are.
const MAX_REFUSALS: u32 = 5;
/// Calls that look for the monitor's response to an offer, each time that the number of calls since
/// has doubled. Where the other end is not fast, none comes until the monitor gives up.
const LOOKS: u32 = 8;

/// Notes that a call in the kernel has moved bytes, and offers the connection when it is time.
pub fn after_exchange(entry: Entry, exchange: Exchange, bytes: u64) {
    let connection = entry.connection;
    let phase = connection.phase();
    if phase == Phase::Settled {
        return;
    }
    let flips = count_change(connection, exchange);
    if phase == Phase::Fresh {
        if is_due(entry, flips) {
            offer_to_monitor(entry);
        }
        return;
    }
    connection.record().counters.tcp_late.fetch_add(bytes, Ordering::Relaxed);
    if phase == Phase::Offered {
        // Two threads at once may count one call: an atomic addition would cost more than that is
        // worth.
        let calls = connection.calls.load(Ordering::Relaxed).wrapping_add(1);
        connection.calls.store(calls, Ordering::Relaxed);
        if is_look_due(calls) {
            monitor::collect();
        }
    }
}

/// Whether the call with this number since the offer looks for the response.
fn is_look_due(calls: u32) -> bool {
    let below = 1 << calls.checked_ilog2().unwrap_or(0);
    calls.is_multiple_of((below / LOOKS).max(1))
}

/// Counts changes of direction: the messages so far are half of `flips`, of which the lowest bit is
/// the direction of the last call.
fn count_change(connection: &Connection, exchange: Exchange) -> u32 {
    let last = u32::from(exchange == Exchange::Received);
    let flips = connection.flips.load(Ordering::Relaxed);
    // The first call sets the direction without a change.
    if flips != 0 && flips & 1 == last {
        return flips;
    }
    let flips = (flips & !1).wrapping_add(2) | last;
    connection.flips.store(flips, Ordering::Relaxed);
    flips
}

/// Returns true if the connection has carried so much that it is to be offered.
fn is_due(entry: Entry, flips: u32) -> bool {
    let connection = entry.connection;
    let counters = &connection.record().counters;
    let refusals = connection.refusals.load(Ordering::Relaxed).min(MAX_REFUSALS);
    let (changes, bytes) = match refusals {
        0 => (2 * (offer_at(entry, flips) - 1), MANY_BYTES),
        _ => (AFTER_REFUSAL << (4 * (refusals - 1)), MANY_BYTES << (4 * refusals)),
    };
    flips / 2 > changes
        || counters.tcp_in.load(Ordering::Relaxed) >= bytes
        || counters.tcp_out.load(Ordering::Relaxed) >= bytes
}

/// The exchange in which the connection is to be offered.
fn offer_at(entry: Entry, flips: u32) -> u32 {
    let connection = entry.connection;
    match connection.offer_at.load(Ordering::Relaxed) {
        0 if flips / 2 > SECOND_EXCHANGE && history::is_known() => {
            monitor::note_addresses(entry);
            let offer_at = history::offer_at(connection);
            connection.offer_at.store(offer_at, Ordering::Relaxed);
            offer_at
        }
        0 => history::first().clamp(2, history::LAST),
        // A forked process can have written anything.
        known => known.clamp(2, history::LAST),
    }
}

fn offer_to_monitor(entry: Entry) {
    let connection = entry.connection;
    if connection.holders.load(Ordering::Relaxed) != 1 || epoll::is_held_by_several(entry) {
        // Another process has descriptors too, and would not see the segment. It may close them
        // soon, as servers do.
        return;
    }
    let is_nonblocking = connection.nonblocking.load(Ordering::Relaxed) != 0;
    if is_nonblocking != tcp::is_nonblocking(entry.fd) {
        // The program makes system calls of its own, which find TCP only.
        tcp_only::enter(Reason::Unsupported);
    }
    if tcp_only::is_on()
        || io_uring::is_used()
        || epoll::is_unsupported(entry)
        || tcp::has_unsupported_options(entry.fd)
    {
        connection.settle(Reason::Unsupported);
        return;
    }
    // An accepted socket has those of the one that listened.
    let timeouts = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
    if timeouts.iter().any(|option| tcp::timeout(entry.fd, *option).is_some()) {
        connection.has_timeouts.store(1, Ordering::Relaxed);
    }
    if !connection.advance(Phase::Fresh, Phase::Offered) {
        return;
    }
    connection.calls.store(0, Ordering::Relaxed);
    if connection.offer_at.load(Ordering::Relaxed) == 0 {
        // There is no history yet.
        monitor::note_addresses(entry);
        connection.offer_at.store(history::first(), Ordering::Relaxed);
    }
    match monitor::send_offer(entry) {
        Offered::Sent => connection.set_mode(levada_ring::records::Mode::Offered),
        Offered::Busy => {
            // The monitor has much to do now: when the connection has had twice as many exchanges.
            let offer_at = connection.exchanges().saturating_mul(2).clamp(2, history::LAST);
            connection.offer_at.store(offer_at, Ordering::Relaxed);
            connection.wait_for_monitor();
        }
        Offered::Failed => connection.settle(Reason::Monitor),
    }
}
