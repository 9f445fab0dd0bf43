//! epoll(7).
//!
//! The program keeps its epoll, and the kernel watches what it watches without this library.
//! Connections on rings, its *members*, stay registered for what the kernel still says of them:
//! that the peer's end is closed. Their other events are found by looking at the rings. To sleep,
//! their peers are asked to ring a bell of this process, which is registered in the epoll too.

mod collect;
mod instances;
mod members;
mod registry;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, sigset_t};

pub use instances::{Instance, release_all};
pub use registry::{
    after_fork, before_exec, before_fork, changed, closing, control, duplicated, forget, in_child,
    is_held_by_several, is_registered, is_unsupported, look_again, nest, restore,
    restore_in_kernel, unregister,
};

use crate::spin::{self, Look};
use crate::{direct, errno, memory, seccomp};

/// Rounds that take only events of rings, before the kernel is asked again.
const ROUNDS: u32 = 8;

/// The program has made an epoll. Threads may wait on it before it has connections.
pub fn created(epoll: c_int) {
    if crate::settings::socket().is_some() {
        instances::find_or_make(epoll);
    }
}

/// Returns true for an epoll that this library has seen.
pub fn is_known(epoll: c_int) -> bool {
    instances::find(epoll).is_some()
}

static ROUNDS_WITHOUT_KERNEL: AtomicU32 = AtomicU32::new(0);

/// epoll_wait(2) and its relatives, if connections that can be fast are registered; else `None`:
/// the caller makes the program's own call.
pub fn wait(
    epoll: c_int,
    events: &mut [epoll_event],
    deadline: impl FnOnce() -> Option<Instant>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let shared = instances::find(epoll)?;
    if seccomp::is_sealed() {
        return from_memory(shared, events);
    }
    let result = wait_for_events(epoll, shared, events, (deadline(), mask));
    let saved = errno::last();
    shared.with(|state| {
        state.arm_for_others();
        state.pass_ring_on();
    });
    errno::set(saved);
    result
}

fn wait_for_events(
    epoll: c_int,
    shared: &'static Instance,
    events: &mut [epoll_event],
    (deadline, mask): (Option<Instant>, *const sigset_t),
) -> Option<c_int> {
    loop {
        registry::take_marks();
        let (rings, watched) =
            shared.with(|state| (state.refresh(epoll), state.members.watched().len()))?;
        let mut ready = 0;
        if rings.is_some_and(|kernel_first| are_rings_first(kernel_first, watched > events.len())) {
            ready = shared.with(|state| {
                state.begin();
                state.by_rings(events)
            })?;
        }
        if ready == 0 && rings.is_some() {
            ROUNDS_WITHOUT_KERNEL.store(0, Ordering::Relaxed);
            memory::sweep();
            direct::sweep();
            let shown = in_kernel(epoll, events, Some(Duration::ZERO), mask);
            if shown < 0 {
                return Some(shown);
            }
            ready = shared.with(|state| {
                state.begin();
                let kept = state.of_kernel(events, shown);
                kept + state.by_rings(&mut events[kept..])
            })?;
        }
        if ready > 0
            || rings.is_some() && deadline.is_some_and(|deadline| deadline <= Instant::now())
        {
            return Some(ready as c_int);
        }
        let due = || shared.with(|state| state.is_any_due()) != Some(false);
        let share = || watched > 0 && shared.with(|state| state.share_processor()) == Some(true);
        let slept = spin::for_events(|look| {
            if rings.is_some() && look.until(watched, share, due) {
                return 0;
            }
            sleep(epoll, shared, events, (deadline, mask, look))
        });
        match slept {
            0 if deadline.is_none_or(|deadline| deadline > Instant::now()) => {}
            ready => return Some(ready),
        }
    }
}

/// Events of connections with unread bytes in a ring that was left. `None` without any: the caller
/// makes the program's own call.
fn from_memory(shared: &'static Instance, events: &mut [epoll_event]) -> Option<c_int> {
    let filled = shared.with(|state| {
        state.begin();
        state.by_rings(events)
    });
    filled.filter(|filled| *filled > 0).map(|filled| filled as c_int)
}

/// Whether a round asks the rings first, and the kernel only if they have nothing. With little room
/// for events, they take turns.
fn are_rings_first(kernel_first: bool, has_little_room: bool) -> bool {
    let rounds = ROUNDS_WITHOUT_KERNEL.fetch_add(1, Ordering::Relaxed);
    if has_little_room { rounds == 0 } else { !kernel_first && rounds < ROUNDS }
}

/// Sleeps until a peer rings or the kernel has something. What the call returns; 0 to look again.
fn sleep(
    epoll: c_int,
    shared: &'static Instance,
    events: &mut [epoll_event],
    (deadline, mask, look): (Option<Instant>, *const sigset_t, &Look<'_>),
) -> c_int {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = [left, memory::longest_sleep(), direct::longest_sleep()].into_iter().flatten().min();
    let armed = shared.with(registry::Epoll::arm);
    if armed == Some(false) {
        return 0;
    }
    let shown = in_kernel(epoll, events, left, mask);
    let saved = errno::last();
    let ready = shared.with(|state| {
        look.slept(state.disarm());
        state.begin();
        state.of_kernel(events, shown)
    });
    errno::set(saved);
    if shown < 0 { shown } else { ready.unwrap_or(0) as c_int }
}

fn in_kernel(
    epoll: c_int,
    events: &mut [epoll_event],
    time: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let count = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let time = time.map(crate::poll::timespec_of);
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the events are a slice, and the mask the program's.
    unsafe { crate::real::epoll_pwait2(epoll, events.as_mut_ptr(), count, pointer, mask) }
}
