//! Chunks that neighbours do not know of yet.

use std::time::Duration;

/// The lower bound of the interval between two messages about new chunks, to all neighbours.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// The upper bound of the interval.
const MAX_INTERVAL: Duration = Duration::from_millis(10);
/// What it grows by with each chunk of the content: the fewer there are, the more of the whole time
/// an interval is.
const PER_CHUNK: Duration = Duration::from_micros(40);

pub(super) struct News {
    indices: Vec<u32>,
    due: Option<Duration>,
    last: Option<Duration>,
    interval: Duration,
}

impl News {
    /// For a content of `chunks`.
    pub(super) fn new(chunks: u32) -> Self {
        let interval = (PER_CHUNK * chunks).clamp(MIN_INTERVAL, MAX_INTERVAL);
        Self { indices: Vec::new(), due: None, last: None, interval }
    }

    /// The first chunk after a pause is told at once, the next ones together.
    pub(super) fn add(&mut self, index: u32, now: Duration) {
        self.indices.push(index);
        let earliest = self.last.map_or(now, |last| last + self.interval);
        self.due.get_or_insert(earliest.max(now));
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    pub(super) fn take(&mut self, now: Duration) -> Option<Vec<u32>> {
        self.due.filter(|due| *due <= now)?;
        (self.due, self.last) = (None, Some(now));
        Some(std::mem::take(&mut self.indices))
    }
}
