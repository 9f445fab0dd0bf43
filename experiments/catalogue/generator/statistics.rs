//! The generator's statistics of the server and of itself.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Fault;
use super::schedule::Schedule;

/// The results of all requests.
pub struct Statistics {
    /// Response times: from the due time to the complete answer, in nanoseconds.
    pub times: Histogram<u64>,
    /// Lateness: from when a request was due and a connection free, until it was sent, in
    /// nanoseconds.
    pub lateness: Histogram<u64>,
    /// Answered requests, also outside the window.
    pub answered: u64,
    /// Failed requests.
    pub errors: Errors,
    /// The generator's busy time.
    pub busy: Busy,
    /// The window in which answers of a closed loop count.
    window: (Instant, Instant),
    closed: bool,
    /// The time of the latest answer.
    latest: Instant,
}

/// Failed requests by [`Fault`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// [`Fault::TimedOut`].
    pub timed_out: u64,
    /// [`Fault::Refused`].
    pub refused: u64,
    /// [`Fault::Cut`].
    pub cut: u64,
    /// [`Fault::Wrong`].
    pub wrong: u64,
    /// [`Fault::NoSocket`].
    pub no_socket: u64,
}

impl Errors {
    /// The sum.
    pub fn all(&self) -> u64 {
        self.timed_out + self.refused + self.cut + self.wrong + self.no_socket
    }
}

/// Measures the share of turns in which a polling thread had work.
pub struct Busy {
    begun: Instant,
    last: Instant,
    idle: Duration,
    worked: bool,
}

impl Busy {
    fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, last: now, idle: Duration::ZERO, worked: false }
    }

    /// Starts a turn; the previous one counts as idle unless it was marked busy.
    pub fn begin_turn(&mut self, now: Instant) {
        if !self.worked {
            self.idle += now - self.last;
        }
        (self.last, self.worked) = (now, false);
    }

    /// Marks this turn as busy.
    pub fn mark_busy(&mut self) {
        self.worked = true;
    }

    /// Counts the time until `now` as idle.
    pub fn end_sleep(&mut self, now: Instant) {
        self.idle += now - self.last;
        self.last = now;
    }

    /// The busy share of the time.
    pub fn share(&self) -> f64 {
        let all = (self.last - self.begun).as_secs_f64();
        if all > 0.0 { 1.0 - self.idle.as_secs_f64() / all } else { 0.0 }
    }
}

impl Statistics {
    pub(super) fn new(schedule: &Schedule) -> anyhow::Result<Self> {
        let window = schedule.window();
        Ok(Self {
            times: Histogram::new(3)?,
            lateness: Histogram::new(3)?,
            answered: 0,
            errors: Errors::default(),
            busy: Busy::new(),
            window,
            closed: schedule.is_closed(),
            latest: window.0,
        })
    }

    /// Records that a request that could be sent at `due` is sent at `now`.
    pub(super) fn sent(&mut self, due: Instant, now: Instant) -> anyhow::Result<()> {
        Ok(self.lateness.record(nanoseconds(now.saturating_duration_since(due)))?)
    }

    /// Records a complete answer.
    pub(super) fn answered(&mut self, due: Instant, now: Instant) -> anyhow::Result<()> {
        self.answered += 1;
        if !self.closed || (self.window.0..self.window.1).contains(&now) {
            self.latest = now;
            self.times.record(nanoseconds(now.saturating_duration_since(due)))?;
        }
        Ok(())
    }

    pub(super) fn failed(&mut self, fault: Fault) {
        *match fault {
            Fault::TimedOut => &mut self.errors.timed_out,
            Fault::Refused => &mut self.errors.refused,
            Fault::Cut => &mut self.errors.cut,
            Fault::Wrong => &mut self.errors.wrong,
            Fault::NoSocket => &mut self.errors.no_socket,
        } += 1;
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.busy.begin_turn(now);
    }

    /// Answers per second.
    pub fn rate(&self) -> f64 {
        let (from, until) = self.window;
        let until = if self.closed { until } else { until.max(self.latest) };
        self.times.len() as f64 / (until - from).as_secs_f64()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
