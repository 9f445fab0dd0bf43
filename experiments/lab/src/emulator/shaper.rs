//! One direction of an emulated link: which packets arrive, and when. Does no I/O; time is passed in, in nanoseconds.

use std::time::Duration;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::RngCore;

use crate::measures::Counters;
use crate::{Change, Link, Loss};

/// When the first and the second copy of a packet arrive; mostly there is no second.
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
    /// How many changes of the schedule were made.
    changed: usize,
    /// When the schedule began.
    began: u64,
    /// When the last packet has left the rate limiter.
    free: u64,
    /// When the last packet that kept its place arrives.
    last: u64,
    bad: bool,
    dice: Dice,
    pub(super) counters: Counters,
}

/// Chances, from a generator each, so that what is asked of one does not change the others.
struct Dice {
    loss: Pcg64,
    duplicate: Pcg64,
    reorder: Pcg64,
    jitter: Pcg64,
}

impl Shaper {
    /// `stream` tells directions with the same seed apart.
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
            dice: Dice::new(link.seed, stream),
            counters: Counters::default(),
        }
    }

    /// A packet came in that takes `bytes` of the rate.
    pub(super) fn offer(&mut self, now: u64, bytes: u64) -> Arrivals {
        self.follow_schedule(now);
        self.counters.packets += 1;
        self.counters.bytes += bytes;
        if self.is_lost() {
            self.counters.lost += 1;
            return [None, None];
        }
        let first = self.send(now, bytes);
        if chance(&mut self.dice.duplicate) >= self.duplicate {
            return [first, None];
        }
        self.counters.duplicated += 1;
        [first, self.send(now, bytes)]
    }

    /// Something changes from the next packet on.
    pub(super) fn change(&mut self, change: &Change) {
        self.delay = change.delay.map_or(self.delay, nanoseconds);
        self.jitter = change.jitter.map_or(self.jitter, nanoseconds);
        self.rate = self.rate.map(|rate| change.rate.unwrap_or(rate));
        self.loss = change.loss.unwrap_or(self.loss);
    }

    /// The schedule begins anew. What its changes made of the link stays until they come again.
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
        let dice = &mut self.dice.loss;
        match self.loss {
            Loss::None => false,
            Loss::Bernoulli(loss) => chance(dice) < loss,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let turn = if self.bad { to_good } else { to_bad };
                self.bad ^= chance(dice) < turn;
                chance(dice) < if self.bad { loss_bad } else { loss_good }
            }
        }
    }

    /// When a packet that was not lost arrives; `None` if the queue has no room for it.
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
        if chance(&mut self.dice.reorder) < self.reorder {
            self.counters.reordered += 1;
            return Some(sent);
        }
        if self.jitter > 0 {
            let offset = (2.0 * chance(&mut self.dice.jitter) - 1.0) * self.jitter as f64;
            return Some(sent + self.delay.saturating_add_signed(offset as i64));
        }
        self.last = self.last.max(sent + self.delay);
        Some(self.last)
    }
}

impl Dice {
    fn new(seed: u64, stream: u64) -> Self {
        let die = |n: u64| Pcg64::new(u128::from(seed), u128::from(stream * 4 + n));
        Self { loss: die(0), duplicate: die(1), reorder: die(2), jitter: die(3) }
    }
}

/// A number from 0 up to, but not including, 1.
fn chance(die: &mut Pcg64) -> f64 {
    (die.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// What `rate` bits per second send in a time.
fn bytes_in(time: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate) / 8_000_000_000).unwrap_or(u64::MAX)
}

/// How long `rate` bits per second take for some bytes.
pub(crate) fn time_of(bytes: u64, rate: u64) -> u64 {
    let time = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    u64::try_from(time).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests;
