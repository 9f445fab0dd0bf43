//! Chunks that neighbours do not know of yet.

use std::time::Duration;

/// The shortest time between two messages about new chunks, to all neighbours.
const INTERVAL: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct News {
    indices: Vec<u32>,
    due: Option<Duration>,
    last: Option<Duration>,
}

impl News {
    /// The first chunk after a pause is told at once, the next ones together.
    pub(super) fn add(&mut self, index: u32, now: Duration) {
        self.indices.push(index);
        let earliest = self.last.map_or(now, |last| last + INTERVAL);
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
