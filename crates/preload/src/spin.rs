//! How long to look for what the peer does, before sleeping.
//!
//! A wait that ends while this end looks costs a fraction of a microsecond; one that sleeps costs both ends several. But a look that
//! keeps the peer from running helps neither. A direction begins with [`FIRST`]; a look in vain halves it. Without looks, every
//! [`SHORT_SLEEPS`]th short sleep begins again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds to look at first.
pub const FIRST: u32 = 20_000;
/// Less is not worth its time. Numbers below count short sleeps.
const LEAST: u32 = 1_000;
const SHORT_SLEEPS: u32 = 64;
/// A sleep that a look would have spared.
const SHORT: Duration = Duration::from_micros(30);
/// Looks between two reads of the clock.
const LOOKS: u32 = 32;

/// Whether looks are worth it: more than one processor may run this process, so that a peer can run while it looks. 0 while unknown,
/// else 1 for no, and 2.
static PROCESSORS: AtomicU32 = AtomicU32::new(0);

fn can_look() -> bool {
    let known = PROCESSORS.load(Ordering::Relaxed);
    if known != 0 {
        return known > 1;
    }
    let several = !crate::settings::sleeps_at_once()
        && rustix::thread::sched_getaffinity(None).map_or(true, |set| set.count() > 1);
    PROCESSORS.store(1 + u32::from(several), Ordering::Relaxed);
    several
}

/// A clock that costs little to read; it moves on every few milliseconds.
pub fn ticks() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Only a change matters.
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

/// Looks until `ready`, for as long as `budget` says. Whether it was.
pub fn look(budget: &AtomicU32, mut ready: impl FnMut() -> bool) -> bool {
    let nanoseconds = budget.load(Ordering::Relaxed);
    if nanoseconds < LEAST || !can_look() {
        return false;
    }
    let limit = Duration::from_nanos(nanoseconds.into());
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if ready() {
                budget.store(FIRST, Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            let half = nanoseconds / 2;
            budget.store(if half < LEAST { 0 } else { half }, Ordering::Relaxed);
            return false;
        }
    }
}

/// Notes how long a sleep was that no look came before.
pub fn slept(budget: &AtomicU32, time: Duration) {
    let count = budget.load(Ordering::Relaxed);
    if count < LEAST && time < SHORT {
        budget.store(if count >= SHORT_SLEEPS { FIRST } else { count + 1 }, Ordering::Relaxed);
    }
}
