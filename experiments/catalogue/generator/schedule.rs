//! When requests are due.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// When to ask.
#[derive(Clone, Copy)]
pub enum Load {
    /// At even points of time, whatever becomes of the answers.
    Open {
        /// Requests per second.
        rate: u32,
        /// Requests in all.
        count: u32,
    },
    /// Whenever a connection is free.
    Closed {
        /// Until then nothing counts.
        warm_up: Duration,
        /// Then so long everything does.
        length: Duration,
    },
}

impl Load {
    /// Requests per second that are demanded, if any number is.
    pub fn rate(self) -> Option<u32> {
        match self {
            Self::Open { rate, .. } => Some(rate),
            Self::Closed { .. } => None,
        }
    }

    /// For how long requests are due.
    pub fn length(self) -> Duration {
        match self {
            Self::Open { rate, count } => Duration::from_secs(1) * count / rate,
            Self::Closed { warm_up, length } => warm_up + length,
        }
    }
}

/// The same, once it has begun.
pub struct Schedule {
    load: Load,
    start: Instant,
    /// Requests that have been due.
    issued: u32,
}

impl Schedule {
    /// Begins now.
    pub fn new(load: Load) -> Self {
        Self { load, start: Instant::now(), issued: 0 }
    }

    /// Adds what is due to `waiting`; in a closed loop, as much as there are connections `free`.
    pub fn come_due(&mut self, now: Instant, free: usize, waiting: &mut VecDeque<Instant>) {
        match self.load {
            Load::Open { .. } => {
                while let Some(due) = self.next().filter(|due| *due <= now) {
                    waiting.push_back(due);
                    self.issued += 1;
                }
            }
            Load::Closed { .. } if now < self.window().1 => {
                waiting.resize(free.max(waiting.len()), now);
            }
            Load::Closed { .. } => {}
        }
    }

    /// When the next request is due, if that is known.
    pub fn next(&self) -> Option<Instant> {
        match self.load {
            Load::Open { rate, count } if self.issued < count => {
                Some(self.start + Duration::from_secs(1) * self.issued / rate)
            }
            _ => None,
        }
    }

    /// No more requests will be due.
    pub fn is_over(&self, now: Instant) -> bool {
        match self.load {
            Load::Open { count, .. } => self.issued == count,
            Load::Closed { .. } => now >= self.window().1,
        }
    }

    /// From when to when answers count. In an open loop all do, and the time is at least that of all requests at their
    /// rate, so that an actual rate is never above the demanded one.
    pub fn window(&self) -> (Instant, Instant) {
        match self.load {
            Load::Open { .. } => (self.start, self.start + self.load.length()),
            Load::Closed { warm_up, .. } => (self.start + warm_up, self.start + self.load.length()),
        }
    }

    /// Whether answers count only within the window.
    pub fn is_closed(&self) -> bool {
        matches!(self.load, Load::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_even_times_and_end() {
        let mut schedule = Schedule::new(Load::Open { rate: 100, count: 3 });
        let (start, mut waiting) = (schedule.start, VecDeque::new());
        schedule.come_due(start, 9, &mut waiting);
        assert_eq!(waiting, [start]);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(schedule.next(), Some(at(10)));
        // Whoever looks late finds all that was due meanwhile, with the times it was due at.
        schedule.come_due(at(500), 0, &mut waiting);
        assert_eq!(waiting, [start, at(10), at(20)]);
        assert!(schedule.is_over(at(500)));
        assert_eq!(schedule.window(), (start, at(30)));
    }

    #[test]
    fn a_closed_loop_fills_what_is_free_until_it_ends() {
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(Load::Closed { warm_up: second, length: second });
        let (start, mut waiting) = (schedule.start, VecDeque::new());
        schedule.come_due(start, 2, &mut waiting);
        assert_eq!(waiting, [start, start]);
        schedule.come_due(start + 2 * second, 5, &mut waiting);
        assert_eq!(waiting.len(), 2);
        assert!(schedule.is_over(start + 2 * second));
    }
}
