//! Chunks that are being obtained.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::PeerId;
use crate::timeout::late_after;

/// A chunk on its way into the cache.
pub(super) struct Fetch {
    /// The provider; the coordinator for the source.
    pub(super) from: PeerId,
    since: Duration,
    /// The moment from which it is fetched elsewhere. The source needs no limit.
    until: Option<Duration>,
    /// Providers that have failed.
    pub(super) tried: Vec<PeerId>,
}

/// All chunks on their way into the cache.
#[derive(Default)]
pub(super) struct Pending {
    fetches: BTreeMap<u32, Fetch>,
    /// The time of a fetch, as a moving average over all providers.
    latency: Duration,
}

impl Pending {
    /// Adds a chunk from a provider, or, without one, from the source.
    pub(super) fn add(
        &mut self,
        index: u32,
        provider: Option<PeerId>,
        tried: Vec<PeerId>,
        now: Duration,
    ) {
        let from = provider.unwrap_or(PeerId::COORDINATOR);
        let until = provider.map(|_| now + late_after(self.latency));
        self.fetches.insert(index, Fetch { from, since: now, until, tried });
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Fetch> {
        self.fetches.remove(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.fetches.len()
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.fetches.contains_key(&index)
    }

    /// Returns true if the chunk is being fetched from this peer.
    pub(super) fn is_from(&self, index: u32, peer: PeerId) -> bool {
        self.fetches.get(&index).is_some_and(|fetch| fetch.from == peer)
    }

    /// All chunks, and the parties that send them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, PeerId)> + '_ {
        self.fetches.iter().map(|(index, fetch)| (*index, fetch.from))
    }

    /// A chunk was received from a peer. Returns the time that it took; None if it was not fetched
    /// from this peer.
    pub(super) fn answered(&mut self, index: u32, from: PeerId, now: Duration) -> Option<Duration> {
        let fetch = self.fetches.get(&index).filter(|fetch| fetch.from == from)?;
        let took = now.saturating_sub(fetch.since);
        self.latency = average(self.latency, took);
        Some(took)
    }

    /// The moment at which the first chunk is late.
    pub(super) fn late_at(&self) -> Option<Duration> {
        self.fetches.values().filter_map(|fetch| fetch.until).min()
    }

    /// The chunks that are late, and the peers that were to send them.
    pub(super) fn late(&self, now: Duration) -> Vec<(u32, PeerId)> {
        let is_late = |fetch: &Fetch| fetch.until.is_some_and(|until| until <= now);
        let late = self.fetches.iter().filter(|(_, fetch)| is_late(fetch));
        late.map(|(index, fetch)| (*index, fetch.from)).collect()
    }
}

/// The moving average of the times of fetches, after one that took `took`.
pub(super) fn average(latency: Duration, took: Duration) -> Duration {
    match latency.is_zero() {
        true => took,
        false => (latency * 7 + took) / 8,
    }
}
