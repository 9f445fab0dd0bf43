//! What connections need, made for the first one: most processes of a script have none.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::Lock;
use crate::{arena, errno, monitor, private, seccomp, settings, shown};

static IS_DONE: AtomicBool = AtomicBool::new(false);
static LOCK: Lock = Lock::new();

/// Makes what connections need. Returns false if they cannot be fast: all of them then stay on TCP.
pub fn prepare() -> bool {
    if IS_DONE.load(Ordering::Acquire) {
        return true;
    }
    let saved = errno::last();
    // `None` in a signal handler that has interrupted this.
    let is_done = LOCK.lock().is_some_and(|_guard| IS_DONE.load(Ordering::Acquire) || make());
    errno::set(saved);
    is_done
}

fn make() -> bool {
    if settings::socket().is_none() {
        return false;
    }
    let may_be_ended = !settings::trusts_seccomp() && seccomp::has_filter();
    let can_start = !may_be_ended && private::has_room();
    if !can_start || arena::create().is_err() || shown::create().is_err() {
        settings::turn_off();
        return false;
    }
    if rustix::process::geteuid().is_root() {
        // Before the program may give up the right to.
        monitor::connect_early();
    }
    IS_DONE.store(true, Ordering::Release);
    true
}

/// No thread is in [`prepare`] during a fork.
pub fn before_fork() {
    LOCK.hold();
}

/// In parent and child.
pub fn after_fork() {
    LOCK.free();
}
