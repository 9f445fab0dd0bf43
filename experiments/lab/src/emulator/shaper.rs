//! One direction of an emulated link: decides which packets arrive, and when. No I/O; time is an
//! argument, in nanoseconds.

use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;

use crate::measures::Counters;
use crate::{Change, Link, Loss};

/// The arrival times of a packet and of its duplicate, if any.
pub(super) type Arrivals = [Option<u64>; 2];

/// The state of one direction.
pub(super) struct Shaper {
    delay: u64,
    jitter: u64,
    rate: Option<u64>,
    loss: Loss,
    queue: u64,
    reorder: f64,
    duplicate: f64,
    schedule: Vec<(u64, Change)>,
    /// The number of applied changes of the schedule.
    changed: usize,
    /// The start of the schedule.
    began: u64,
    /// The time at which the last packet leaves the rate limiter.
    free: u64,
    /// The arrival time of the last packet that was not reordered.
    last: u64,
    bad: bool,
    generators: Generators,
    pub(super) counters: Counters,
}

/// A random generator for each kind of event, so that they are independent of each other.
struct Generators {
    loss: Pcg64,
    duplicate: Pcg64,
    reorder: Pcg64,
    jitter: Pcg64,
}

impl Shaper {
    /// `stream` selects different random numbers for directions with the same seed.
    pub(super) fn new(link: &Link, stream: u64, now: u64) -> Self {
        let mut schedule: Vec<_> =
            link.schedule.iter().map(|(at, change)| (nanoseconds(*at), change.clone())).collect();
        schedule.sort_by_key(|(at, _)| *at);
        Self {
            delay: nanoseconds(link.delay),
            jitter: nanoseconds(link.jitter),
            rate: link.rate,
            loss: link.loss,
            queue: link.rate.map_or(0, |rate| link.queue_or_default(rate)),
            reorder: link.reorder,
            duplicate: link.duplicate,
            schedule,
            changed: 0,
            began: now,
            free: 0,
            last: 0,
            bad: false,
            generators: Generators::new(link.seed, stream),
            counters: Counters::default(),
        }
    }

    /// Handles a packet of `bytes` bytes received at `now`.
    pub(super) fn enqueue(&mut self, now: u64, bytes: u64) -> Arrivals {
        self.follow_schedule(now);
        self.counters.packets += 1;
        self.counters.bytes += bytes;
        if self.is_lost() {
            self.counters.lost += 1;
            return [None, None];
        }
        let first = self.send(now, bytes);
        if chance(&mut self.generators.duplicate) >= self.duplicate {
            return [first, None];
        }
        self.counters.duplicated += 1;
        [first, self.send(now, bytes)]
    }

    /// Applies a change from the next packet on.
    pub(super) fn change(&mut self, change: &Change) {
        self.delay = change.delay.map_or(self.delay, nanoseconds);
        self.jitter = change.jitter.map_or(self.jitter, nanoseconds);
        self.rate = self.rate.map(|rate| change.rate.unwrap_or(rate));
        self.loss = change.loss.unwrap_or(self.loss);
    }

    /// Restarts the schedule. Properties that were changed stay until the next change.
    pub(super) fn restart_schedule(&mut self, now: u64) {
        self.began = now;
        self.changed = 0;
    }

    fn follow_schedule(&mut self, now: u64) {
        while let Some((at, change)) = self.schedule.get(self.changed) {
            if self.began + at > now {
                return;
            }
            let change = change.clone();
            self.changed += 1;
            self.change(&change);
        }
    }

    fn is_lost(&mut self) -> bool {
        let generators = &mut self.generators.loss;
        match self.loss {
            Loss::None => false,
            Loss::Bernoulli(loss) => chance(generators) < loss,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let turn = if self.bad { to_good } else { to_bad };
                self.bad ^= chance(generators) < turn;
                chance(generators) < if self.bad { loss_bad } else { loss_good }
            }
        }
    }

    /// The arrival time of a packet that was not lost; `None` if the queue is full.
    fn send(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let sent = match self.rate {
            None => now,
            Some(rate) => {
                let start = self.free.max(now);
                let waiting = bytes_in(start - now, rate);
                if waiting > 0 && waiting + bytes > self.queue {
                    self.counters.dropped += 1;
                    return None;
                }
                self.free = start + time_of(bytes, rate);
                self.free
            }
        };
        if chance(&mut self.generators.reorder) < self.reorder {
            self.counters.reordered += 1;
            return Some(sent);
        }
        if self.jitter > 0 {
            let offset = (2.0 * chance(&mut self.generators.jitter) - 1.0) * self.jitter as f64;
            return Some(sent + self.delay.saturating_add_signed(offset as i64));
        }
        self.last = self.last.max(sent + self.delay);
        Some(self.last)
    }
}

impl Generators {
    fn new(seed: u64, stream: u64) -> Self {
        let generator = |n: u64| Pcg64::new(u128::from(seed), u128::from(stream * 4 + n));
        Self {
            loss: generator(0),
            duplicate: generator(1),
            reorder: generator(2),
            jitter: generator(3),
        }
    }
}

/// A random number in [0, 1).
fn chance(generator: &mut Pcg64) -> f64 {
    (generator.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// The bytes that `rate` bits per second send in `time` nanoseconds.
fn bytes_in(time: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate) / 8_000_000_000).unwrap_or(u64::MAX)
}

/// The time in nanoseconds of `bytes` at `rate` bits per second.
pub(crate) fn time_of(bytes: u64, rate: u64) -> u64 {
    let time = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    u64::try_from(time).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests;
