//! Connections that the kernel does not know (`levada fast --direct`).
//!
//! A listener of this process has a queue in shared memory ([`listeners`]). A client puts its
//! connection there ([`connect`]), in a segment of the pool that both processes share ([`pairs`]),
//! and the listener takes it ([`accept`]). No TCP connection is underneath, so what TCP answers
//! otherwise is answered here: the ends of a stream and resets ([`ends`]), the addresses and the
//! options ([`answers`]).
//!
//! The first connection of two processes is one of the kernel's. Whatever is unusual is made by the
//! kernel, too.

mod accept;
mod answers;
mod connect;
mod ends;
mod listeners;
mod pairs;
mod pool;
mod ports;
mod stock;
mod stream;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

pub use accept::accept;
pub use answers::{flags, has_own_flags, name, option, own_socket, set_nonblocking, set_option};
pub use connect::{connect, has_connected};
pub use ends::{before_exec, bury_if_dead, goodbye, leave, position, ready, shutdown, take_error};
pub use listeners::{accepted, announce, close, has_entry, listened, shut};
pub use pairs::{gone, learn};
pub use pool::Pair;
pub use stream::{receive, send};

use crate::connection::Phase;
use crate::table::{self, Entry};
use crate::{epoll, monitor, settings, spin};

/// Between two looks whether the processes at the other ends are alive: a killed one rings no bell.
const INTERVAL: Duration = Duration::from_secs(1);

/// Connections of this process that the kernel does not know.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// When the other ends were last looked at, in [`ticks`](spin::ticks).
static SWEPT: AtomicU32 = AtomicU32::new(0);

/// Returns true if connections of this process may be direct.
pub fn is_on() -> bool {
    settings::is_direct()
}

/// Returns true for a connection that the kernel does not know.
#[inline]
pub fn is_direct(entry: Entry) -> bool {
    entry.connection.phase() == Phase::Direct
}

/// A connection has begun.
fn opened() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A connection has ended, or this process has closed it.
pub fn closed() {
    let less = |count: usize| count.checked_sub(1);
    let _ = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// The longest sleep while there are such connections, or queues of them.
pub fn longest_sleep() -> Option<Duration> {
    // A client that was killed after it had made an entry has perhaps not rung.
    (OPEN.load(Ordering::Relaxed) > 0 || listeners::count() > 0).then_some(INTERVAL)
}

/// Ends the connections whose other ends were killed, if it is time to look.
pub fn sweep() {
    if longest_sleep().is_none() {
        return;
    }
    let now = spin::ticks();
    let last = SWEPT.load(Ordering::Relaxed);
    let is_time = u128::from(now.wrapping_sub(last)) >= INTERVAL.as_millis() * 9 / 10;
    let claim = || SWEPT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if is_time && claim().is_ok() {
        // Clients that have gone.
        monitor::collect();
        for entry in table::entries().filter(|entry| is_direct(*entry)) {
            if ends::bury_if_dead(entry) {
                epoll::look_again(entry.number);
            }
        }
    }
}

/// In the child of a fork: the pools and listeners are its parent's. What it has inherited, it
/// shares.
pub fn in_child() {
    accept::in_child();
    listeners::in_child();
    pairs::in_child();
    connect::in_child();
    table::entries().filter(|entry| is_direct(*entry)).for_each(ends::share);
}

/// No thread is at the tables during a fork, and no client is let into a queue that two processes
/// would have.
pub fn before_fork() {
    listeners::before_fork();
    pairs::before_fork();
    connect::before_fork();
}

/// In parent and child.
pub fn after_fork() {
    pairs::after_fork();
    connect::after_fork();
}
