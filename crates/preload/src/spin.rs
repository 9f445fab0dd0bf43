//! How long to look for what the peer does, before sleeping.
//!
//! A wait that ends while this end looks costs a fraction of a microsecond; one that sleeps costs
//! the wake-ups of both ends. So a look takes as long as two wake-ups, as they were measured here,
//! and waits that are longer on average sleep at once. A look gives its processor to others that
//! want it; after one in vain, some waits sleep at once, and more of them after each further one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sharing;

/// The time of a wake-up before one was measured, and the longest that counts, in nanoseconds.
const FIRST_WAKE_UP: u32 = 10_000;
const LONGEST_WAKE_UP: u32 = 100_000;
/// An average moves by one part in as many towards a new value.
const WEIGHT: u32 = 8;
/// The longest wait that counts, as a multiple of the longest look.
const LONGEST_WAIT: u32 = 8;
/// Looks in vain after which the number of waits without a look no longer doubles.
const MOST_IN_VAIN: u32 = 6;
/// Looks at one connection between two reads of the clock.
const LOOKS: u32 = 32;

/// How long a thread of this process takes to run after it was woken, in nanoseconds, on average. 0
/// while unknown.
static WAKE_UP: AtomicU32 = AtomicU32::new(0);

/// A clock that costs little to read; it moves on every few milliseconds.
pub fn ticks() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Only a change matters.
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

/// What is known of the waits of one kind.
#[repr(C)]
#[derive(Default)]
pub struct Waits {
    /// How long they take on average, in nanoseconds, without the wake-ups of this end.
    average: AtomicU32,
    /// Looks in vain since the last one that was not, and, in the upper half, waits that are still
    /// to pass without a look.
    in_vain: AtomicU32,
}

impl Waits {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self { average: AtomicU32::new(0), in_vain: AtomicU32::new(0) }
    }

    /// Forgets what is known.
    pub fn clear(&self) {
        self.average.store(0, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }

    fn note(&self, nanoseconds: u64) {
        let most = LONGEST_WAIT * longest_look();
        let time = u32::try_from(nanoseconds).unwrap_or(u32::MAX).min(most);
        let average = self.average.load(Ordering::Relaxed);
        self.average.store(closer(average, time), Ordering::Relaxed);
    }

    /// Whether a look is worth its time now.
    fn worth(&self) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain >> 16 == 0 {
            return true;
        }
        self.in_vain.store(in_vain - (1 << 16), Ordering::Relaxed);
        false
    }

    fn note_in_vain(&self) {
        let count = (self.in_vain.load(Ordering::Relaxed) & 0xffff).min(MOST_IN_VAIN - 1) + 1;
        self.in_vain.store(count | ((1 << count) - 1) << 16, Ordering::Relaxed);
    }
}

/// One wait, from its start on.
pub struct Look<'a> {
    waits: &'a Waits,
    start: Cell<Option<u64>>,
    /// Set by the first [`until`](Self::until) that was in vain, or not worth its time.
    is_over: Cell<bool>,
}

impl<'a> Look<'a> {
    /// The wait begins.
    pub fn new(waits: &'a Waits) -> Self {
        Self { waits, start: Cell::new(None), is_over: Cell::new(false) }
    }

    /// Calls `ready`, which reads the state of this number of connections, until it returns true,
    /// for as long as that is worth its time. `shares` returns true if the peers are on the
    /// processor of this thread. Returns false if it was not ready; further calls then return false
    /// at once.
    pub fn until(
        &self,
        connections: usize,
        shares: impl FnOnce() -> bool,
        ready: impl FnMut() -> bool,
    ) -> bool {
        if self.is_over.get() {
            return false;
        }
        if crate::settings::sleeps_at_once() || sharing::is_paused() {
            return self.sleep_at_once();
        }
        let shares = shares();
        let is_long = self.waits.average.load(Ordering::Relaxed) > longest_look();
        // While this thread yields, others run: that costs little, also in vain.
        if is_long && !shares || !self.waits.worth() {
            return self.sleep_at_once();
        }
        if shares { self.by_yields(ready) } else { self.by_polls(connections, ready) }
    }

    fn sleep_at_once(&self) -> bool {
        self.start.set(Some(levada_ring::now()));
        self.is_over.set(true);
        false
    }

    fn by_yields(&self, ready: impl FnMut() -> bool) -> bool {
        let start = levada_ring::now();
        self.start.set(Some(start));
        let passed = sharing::yield_until(start, ready);
        if let Some(passed) = passed {
            self.waits.in_vain.store(0, Ordering::Relaxed);
            self.waits.note(passed);
        } else {
            self.waits.note_in_vain();
            self.is_over.set(true);
        }
        passed.is_some()
    }

    fn by_polls(&self, connections: usize, mut ready: impl FnMut() -> bool) -> bool {
        let limit = u64::from(longest_look());
        let looks = (LOOKS as usize / connections.max(1)).max(1);
        let mut passed = 0;
        loop {
            for _ in 0..looks {
                if ready() {
                    self.waits.in_vain.store(0, Ordering::Relaxed);
                    self.waits.note(passed);
                    return true;
                }
                std::hint::spin_loop();
            }
            // Most waits in a rapid exchange end before the clock is read.
            let start = self.start.get().unwrap_or_else(levada_ring::now);
            self.start.set(Some(start));
            // The peer may want this processor, or another program has work for it: then this takes
            // as long as a time slice, which counts as a part of the wait.
            std::thread::yield_now();
            let now = levada_ring::now();
            let took = now.saturating_sub(start + passed);
            passed = now.saturating_sub(start);
            let is_over = passed >= limit || sharing::note_poll(took, now);
            if is_over && !ready() {
                self.waits.note_in_vain();
                self.is_over.set(true);
                return false;
            }
        }
    }

    /// Notes that this end has slept since, and when its peer has woken it, in nanoseconds of
    /// [`levada_ring::now`]; `None` if it was not woken by the peer.
    pub fn slept(&self, woken_at: Option<u64>) {
        let Some(start) = self.start.get() else { return };
        let now = levada_ring::now();
        // The peer writes it: it may be anything.
        let woken_at = woken_at.filter(|at| (start..now).contains(at));
        if let Some(woken_at) = woken_at {
            let time = u32::try_from(now - woken_at).unwrap_or(u32::MAX).min(LONGEST_WAKE_UP);
            let known = WAKE_UP.load(Ordering::Relaxed);
            let average = if known == 0 { time } else { closer(known, time) };
            WAKE_UP.store(average.max(1), Ordering::Relaxed);
        }
        self.waits.note(woken_at.unwrap_or(now).saturating_sub(start));
    }
}

fn closer(average: u32, value: u32) -> u32 {
    average - average / WEIGHT + value / WEIGHT
}

/// The wake-ups of both ends, in nanoseconds.
fn longest_look() -> u32 {
    let known = WAKE_UP.load(Ordering::Relaxed);
    2 * if known == 0 { FIRST_WAKE_UP } else { known }
}

thread_local! {
    /// The waits of this thread for several descriptors at once.
    static EVENTS: Waits = const { Waits::new() };
}

/// Makes `one` wait of this thread for several descriptors.
pub fn for_events<T>(one: impl FnOnce(&Look<'_>) -> T) -> T {
    EVENTS.with(|waits| one(&Look::new(waits)))
}
