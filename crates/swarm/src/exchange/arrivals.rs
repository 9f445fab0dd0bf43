//! Chunks that were accepted, until they arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::PeerId;
use crate::timeout::late_after;

/// A chunk that was accepted.
pub(super) struct Expected {
    pub(super) from: PeerId,
    pub(super) since: Duration,
    until: Duration,
}

/// The chunks that are expected from all neighbours.
#[derive(Default)]
pub(super) struct Arrivals {
    expected: BTreeMap<u32, Expected>,
    /// The time from accepting a chunk to its arrival, as a moving average.
    average: Duration,
}

impl Arrivals {
    /// A chunk was accepted. Returns the moment from which it is late.
    pub(super) fn expect(&mut self, index: u32, from: PeerId, now: Duration) -> Duration {
        let until = now + late_after(self.average);
        self.expected.insert(index, Expected { from, since: now, until });
        until
    }

    /// A chunk has taken this time to arrive.
    pub(super) fn measure(&mut self, took: Duration) {
        self.average = (self.average * 7 + took) / 8;
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.expected.contains_key(&index)
    }

    /// Returns true if the chunk is expected from this neighbour.
    pub(super) fn is_from(&self, index: u32, from: PeerId) -> bool {
        self.expected.get(&index).is_some_and(|expected| expected.from == from)
    }

    /// The expected chunks.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.expected.keys().copied()
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Expected> {
        self.expected.remove(&index)
    }

    /// Removes the chunks that are expected from a neighbour, and returns them.
    pub(super) fn remove_all(&mut self, from: PeerId) -> Vec<u32> {
        let mut removed = Vec::new();
        self.expected.retain(|index, expected| {
            let is_removed = expected.from == from;
            removed.extend(is_removed.then_some(*index));
            !is_removed
        });
        removed
    }

    /// The chunks that are late.
    pub(super) fn late(&self, now: Duration) -> Vec<u32> {
        let late = self.expected.iter().filter(|(_, expected)| expected.until <= now);
        late.map(|(index, _)| *index).collect()
    }

    /// The moment at which the first chunk is late.
    pub(super) fn late_at(&self) -> Option<Duration> {
        self.expected.values().map(|expected| expected.until).min()
    }
}
