//! Waits for a peer on the processor of this thread: the peer runs only once this thread lets it.
//!
//! Such a wait yields (sched_yield) instead of polling. If other programs have work for this
//! processor, a yield takes as long as the scheduler lets them run, and is worse than a sleep.

use std::cell::Cell;

use levada_ring::now;

/// The yields of one wait. After the first one, the peer has usually done what the wait is for.
const MAX_YIELDS: u32 = 10;
/// A yield that takes longer is long, in nanoseconds: another program has had its time slice. With
/// eight pairs of threads on one processor, a yield takes 40 µs; if a virtual processor is not run
/// for a moment, 50 to 200 µs.
const LONG_YIELD: u64 = 500_000;
/// The length of the first pause, in nanoseconds; each that follows at once is twice as long.
const PAUSE: u64 = 20_000_000;
const LONGEST_PAUSE: u64 = 160_000_000;
/// The time after which a thread reads its scheduling policy again, in nanoseconds.
const POLICY_PERIOD: u64 = 10_000_000;

/// The state of one thread. Times are in nanoseconds of [`now`].
struct Yields {
    /// Set after a long yield: the waits of the thread sleep at once.
    is_paused: Cell<bool>,
    /// The end of the last pause.
    paused_until: Cell<u64>,
    pause: Cell<u64>,
    /// The end of the last long round of polls.
    long_poll_at: Cell<u64>,
    policy_read_at: Cell<u64>,
    /// A yield lets each other thread run.
    is_fair: Cell<bool>,
}

thread_local! {
    static OWN: Yields = const { Yields::new() };
}

/// Returns true for some time after a long yield of this thread.
pub fn is_paused() -> bool {
    // The clock is read only after a long yield.
    OWN.with(|own| own.is_paused.get() && own.is_still_paused(now()))
}

/// Yields until `ready` returns true, for some times at most. Returns how long that took since
/// `start`, which is now; `None` if it did not.
pub fn yield_until(start: u64, mut ready: impl FnMut() -> bool) -> Option<u64> {
    if !OWN.with(|own| own.lets_others_run(start)) {
        return None;
    }
    let mut before = start;
    for _ in 0..MAX_YIELDS {
        std::thread::yield_now();
        let after = now();
        let is_long = after.saturating_sub(before) > LONG_YIELD;
        if is_long {
            OWN.with(|own| own.pause(after));
        }
        if ready() {
            return Some(after.saturating_sub(start));
        }
        if is_long {
            return None;
        }
        before = after;
    }
    None
}

/// Notes how long a round of polls took, with its yield. Returns true if the wait is to sleep: two
/// long rounds shortly after each other are due to another program, a single one perhaps to a
/// virtual processor that was not run.
pub fn note_poll(took: u64, now: u64) -> bool {
    took > LONG_YIELD && OWN.with(|own| own.note_long_poll(now))
}

impl Yields {
    const fn new() -> Self {
        Self {
            is_paused: Cell::new(false),
            paused_until: Cell::new(0),
            pause: Cell::new(0),
            long_poll_at: Cell::new(0),
            policy_read_at: Cell::new(0),
            is_fair: Cell::new(false),
        }
    }

    fn is_still_paused(&self, now: u64) -> bool {
        self.is_paused.set(now < self.paused_until.get());
        self.is_paused.get()
    }

    fn note_long_poll(&self, now: u64) -> bool {
        let last = self.long_poll_at.replace(now);
        let is_second = now.saturating_sub(last) < PAUSE;
        if is_second {
            self.pause(now);
        }
        is_second
    }

    /// Begins a pause. All threads of the system end their pauses at the same times, the multiples
    /// of their length: the scheduler moves a thread that yields behind all that sleep, so that one
    /// that resumed alone would find its first yield long again.
    fn pause(&self, now: u64) {
        let is_next = now.saturating_sub(self.paused_until.get()) < PAUSE;
        let length = if is_next { 2 * self.pause.get() } else { PAUSE };
        let length = length.clamp(PAUSE, LONGEST_PAUSE);
        self.pause.set(length);
        self.paused_until.set((now / length).saturating_add(1).saturating_mul(length));
        self.is_paused.set(true);
    }

    /// Returns false under a real-time policy: a yield then lets no thread of a lower priority run,
    /// as the peer may be.
    fn lets_others_run(&self, now: u64) -> bool {
        let read_at = self.policy_read_at.get();
        if read_at == 0 || now.saturating_sub(read_at) > POLICY_PERIOD {
            // SAFETY: the call takes the number of this thread, and no address.
            let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
            let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
            self.is_fair.set(fair.contains(&policy));
            self.policy_read_at.set(now);
        }
        self.is_fair.get()
    }
}
