//! Connections that the kernel does not know (`levada fast --direct`).
//!
//! A client and the processes that have a listener share a pool of segments ([`pairs`], [`pool`]).
//! The client makes its connection there ([`connect`]), where it waits for the listener
//! ([`listeners`]), and one of the processes takes it ([`accept`]). No TCP connection is underneath,
//! so what TCP answers otherwise is answered here: the ends of a stream and resets ([`ends`]), the
//! addresses and the options ([`answers`]).
//!
//! The first connection to a listener is one of the kernel's. Whatever is unusual is made by the
//! kernel, too.

mod accept;
mod answers;
mod connect;
mod ends;
mod listeners;
mod pairs;
mod pool;
mod ports;
mod spares;
mod stock;
mod stream;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use accept::accept;
pub use answers::{flags, name, option, own_socket, set_nonblocking, set_option};
pub use connect::{connect, has_connected};
pub use ends::{bury_if_dead, goodbye, leave_for_good, ready, shutdown, take_error};
pub use listeners::{accepted, announce, close, end, has_waiting, leave, listened, shut};
pub use pairs::{Member, learn, learn_member, made, retire};
pub use pool::{Pair, Role};
pub use spares::{
    claim, closing, has_own_flags, leave_namespace, release as release_spares, socket,
};
pub use stream::{receive, send};

use crate::connection::Phase;
use crate::table::{self, Entry};
use crate::{epoll, monitor, settings, spin};

/// Between two looks at the lines: a process that is killed rings no bell.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the lines were last looked at, in [`ticks`](spin::ticks).
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

/// The longest sleep while there are pools, or may be.
pub fn longest_sleep() -> Option<Duration> {
    (pairs::count() > 0 || listeners::may_join()).then_some(INTERVAL)
}

/// Ends the connections with processes that were killed, if it is time to look.
pub fn sweep() {
    if longest_sleep().is_none() {
        return;
    }
    let now = spin::ticks();
    let last = SWEPT.load(Ordering::Relaxed);
    let is_time = u128::from(now.wrapping_sub(last)) >= INTERVAL.as_millis() * 9 / 10;
    let claim = || SWEPT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if !is_time || claim().is_err() {
        return;
    }
    // Clients that have come.
    monitor::collect();
    listeners::sweep();
    if pairs::may_have_ended() {
        for entry in table::entries().filter(|entry| is_direct(*entry)) {
            if ends::bury_if_dead(entry) {
                epoll::look_again(entry.number);
            }
        }
        pairs::retire();
    }
}

/// In the parent of a fork.
pub fn in_parent() {
    pairs::in_parent();
}

/// In the child of a fork. The next wait looks at once for listeners that it has inherited.
pub fn in_child() {
    SWEPT.store(spin::ticks().wrapping_sub(INTERVAL.as_millis() as u32), Ordering::Relaxed);
    listeners::in_child();
    pairs::in_child();
    connect::in_child();
    spares::in_child();
}

/// No thread is at the tables during a fork.
pub fn before_fork() {
    spares::before_fork();
    pairs::before_fork();
    connect::before_fork();
}

/// In parent and child.
pub fn after_fork() {
    pairs::after_fork();
    connect::after_fork();
    spares::after_fork();
}
