//! When a connection is offered to the monitor: a short one never is.

use std::sync::atomic::Ordering;

use levada_ring::records::Reason;

use crate::connection::{Connection, Phase};
use crate::table::Entry;
use crate::{io_uring, monitor, tcp};

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
/// Calls after an offer that look for the monitor's response; later, one of so many does.
const EAGER_CALLS: u32 = 16;
const LATER_CALLS: u32 = 16;

/// Notes that a call in the kernel has moved bytes, and offers the connection when it is time.
pub fn after_exchange(entry: Entry, exchange: Exchange, bytes: u64) {
    let connection = entry.connection;
    match connection.phase() {
        Phase::Fresh => {
            if is_due(connection, exchange) {
                offer_to_monitor(entry);
            }
        }
        Phase::Offered => {
            connection.record.counters.tcp_late.fetch_add(bytes, Ordering::Relaxed);
            let calls = connection.calls.fetch_add(1, Ordering::Relaxed);
            if calls < EAGER_CALLS || calls.is_multiple_of(LATER_CALLS) {
                monitor::collect();
            }
        }
        Phase::Paired => {
            connection.record.counters.tcp_late.fetch_add(bytes, Ordering::Relaxed);
        }
        Phase::Settled => {}
    }
}

/// Counts changes of direction. The lowest bit of `flips` is the direction of the last call.
fn is_due(connection: &Connection, exchange: Exchange) -> bool {
    let last = u32::from(exchange == Exchange::Received);
    let mut flips = connection.flips.load(Ordering::Relaxed);
    // The first call sets the direction without a change.
    if flips == 0 {
        flips = 2 | last;
    } else if flips & 1 != last {
        flips = ((flips & !1) + 2) | last;
    }
    connection.flips.store(flips, Ordering::Relaxed);
    let counters = &connection.record.counters;
    flips / 2 > SECOND_EXCHANGE
        || counters.tcp_in.load(Ordering::Relaxed) >= MANY_BYTES
        || counters.tcp_out.load(Ordering::Relaxed) >= MANY_BYTES
}

fn offer_to_monitor(entry: Entry) {
    let connection = entry.connection;
    if connection.holders.load(Ordering::Relaxed) != 1 {
        // Another process has descriptors too, and would not see the segment. It may close them soon, as servers do.
        return;
    }
    if io_uring::is_used()
        || crate::epoll::is_unsupported(entry)
        || tcp::has_unsupported_options(entry.fd)
    {
        connection.settle(Reason::Unsupported);
        return;
    }
    if !connection.advance(Phase::Fresh, Phase::Offered) {
        return;
    }
    if monitor::send_offer(entry) {
        connection.set_mode(levada_ring::records::Mode::Offered);
    } else {
        connection.settle(Reason::Monitor);
    }
}
