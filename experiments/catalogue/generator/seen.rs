//! What a generator saw: of the server, and of itself.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Fault;
use super::schedule::Schedule;

/// What came of all requests.
pub struct Seen {
    /// From when requests were due until their answers were complete, in nanoseconds.
    pub times: Histogram<u64>,
    /// From when requests were due, and a connection free for them, until they were sent, in nanoseconds.
    pub lateness: Histogram<u64>,
    /// Requests that were answered, within the window or not.
    pub answered: u64,
    /// What went wrong with the others.
    pub errors: Errors,
    /// How long the generator had something to do.
    pub busy: Busy,
    /// Answers before and after it do not count.
    window: (Instant, Instant),
    closed: bool,
    /// The latest answer.
    latest: Instant,
}

/// Requests without the right answer, by what happened.
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
    /// All of them.
    pub fn all(&self) -> u64 {
        self.timed_out + self.refused + self.cut + self.wrong + self.no_socket
    }
}

/// Tells a thread's work from its looking around.
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

    /// Another turn begins: if nothing was done in the one before, it was idle.
    pub fn look(&mut self, now: Instant) {
        if !self.worked {
            self.idle += now - self.last;
        }
        (self.last, self.worked) = (now, false);
    }

    /// There is something to do in this turn.
    pub fn work(&mut self) {
        self.worked = true;
    }

    /// This turn has slept until `now`.
    pub fn rested(&mut self, now: Instant) {
        self.idle += now - self.last;
        self.last = now;
    }

    /// The share of the time in which there was something to do.
    pub fn share(&self) -> f64 {
        let all = (self.last - self.begun).as_secs_f64();
        if all > 0.0 { 1.0 - self.idle.as_secs_f64() / all } else { 0.0 }
    }
}

impl Seen {
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

    /// A request could be sent at `due` and is sent now.
    pub(super) fn sent(&mut self, due: Instant, now: Instant) -> anyhow::Result<()> {
        Ok(self.lateness.record(nanoseconds(now.saturating_duration_since(due)))?)
    }

    /// An answer is complete.
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
        self.busy.look(now);
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
