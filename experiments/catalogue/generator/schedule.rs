//! The schedule of requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// An open or a closed loop.
#[derive(Clone, Copy)]
pub enum Load {
    /// Requests are due at even intervals, independent of the answers.
    Open {
        /// Requests per second.
        rate: u32,
        /// The total number of requests.
        count: u32,
    },
    /// A request is due whenever a connection is free.
    Closed {
        /// The time before the window.
        warm_up: Duration,
        /// The length of the window.
        length: Duration,
    },
}

impl Load {
    /// The demanded requests per second of an open loop.
    pub fn rate(self) -> Option<u32> {
        match self {
            Self::Open { rate, .. } => Some(rate),
            Self::Closed { .. } => None,
        }
    }

    /// The time in which requests are due.
    pub fn length(self) -> Duration {
        match self {
            Self::Open { rate, count } => Duration::from_secs(1) * count / rate,
            Self::Closed { warm_up, length } => warm_up + length,
        }
    }
}

/// A running load.
pub struct Schedule {
    load: Load,
    start: Instant,
    /// The number of requests that were due so far.
    issued: u32,
}

impl Schedule {
    /// A schedule that starts now.
    pub fn new(load: Load) -> Self {
        Self { load, start: Instant::now(), issued: 0 }
    }

    /// Adds due requests to `waiting`; in a closed loop, one for each free connection.
    pub fn issue_due(&mut self, now: Instant, free: usize, waiting: &mut VecDeque<Instant>) {
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

    /// The due time of the next request of an open loop.
    pub fn next(&self) -> Option<Instant> {
        match self.load {
            Load::Open { rate, count } if self.issued < count => {
                Some(self.start + Duration::from_secs(1) * self.issued / rate)
            }
            _ => None,
        }
    }

    /// Whether no more requests will be due.
    pub fn is_over(&self, now: Instant) -> bool {
        match self.load {
            Load::Open { count, .. } => self.issued == count,
            Load::Closed { .. } => now >= self.window().1,
        }
    }

    /// The window in which answers count. In an open loop all answers count, and the window is at
    /// least as long as all requests at their rate, so that the actual rate is never above the
    /// demanded one.
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
        let start = schedule.start;
        let mut waiting = VecDeque::new();
        schedule.issue_due(start, 9, &mut waiting);
        assert_eq!(waiting, [start]);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(schedule.next(), Some(at(10)));
        // A late call returns all requests due meanwhile, with their due times.
        schedule.issue_due(at(500), 0, &mut waiting);
        assert_eq!(waiting, [start, at(10), at(20)]);
        assert!(schedule.is_over(at(500)));
        assert_eq!(schedule.window(), (start, at(30)));
    }

    #[test]
    fn a_closed_loop_issues_a_request_per_free_connection_until_it_ends() {
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(Load::Closed { warm_up: second, length: second });
        let start = schedule.start;
        let mut waiting = VecDeque::new();
        schedule.issue_due(start, 2, &mut waiting);
        assert_eq!(waiting, [start, start]);
        schedule.issue_due(start + 2 * second, 5, &mut waiting);
        assert_eq!(waiting.len(), 2);
        assert!(schedule.is_over(start + 2 * second));
    }
}
