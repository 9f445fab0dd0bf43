//! A process whose connections stay on TCP from some time on, because this library cannot see all
//! that the program does with them, or may not have what rings need.

use std::sync::atomic::{AtomicU32, Ordering};

use levada_ring::records::Reason;

use crate::{demote, direct, monitor, poll, private, process, seccomp, shown, table, waking};

static IS_ON: AtomicU32 = AtomicU32::new(0);

/// Returns true if no connection of this process may leave TCP.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Acquire) != 0
}

/// From now on, no connection leaves TCP. The caller moves those back that have left it.
pub fn set() {
    IS_ON.store(1, Ordering::SeqCst);
}

/// Moves all connections back to TCP, where they stay.
pub fn enter(reason: Reason) {
    if IS_ON.swap(1, Ordering::AcqRel) == 0 {
        let all: Vec<_> = table::entries().collect();
        demote::all(&all, reason);
        // Threads that sleep until a ring has something ask the kernel instead.
        waking::ring_all_own();
    }
}

/// The limit of descriptors of this process has changed. If the library has more than its share of
/// them, it gives all back.
pub fn limit_changed() {
    if seccomp::is_sealed() || private::has_its_share() || !process::owns_tables() {
        return;
    }
    enter(Reason::Exhausted);
    direct::release_spares();
    monitor::leave();
    poll::release();
    waking::release();
    private::forget(shown::file());
}
