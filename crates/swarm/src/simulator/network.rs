//! Links of the simulated network: each party has an uplink and a downlink.

use std::time::Duration;

use super::{PeerScenario, Scenario};
use crate::PeerId;

pub(super) struct Network {
    /// By the number of the peer; the coordinator is number 0.
    ends: Vec<End>,
}

struct End {
    /// Bits per second.
    up: u64,
    down: u64,
    up_free: Duration,
    down_free: Duration,
    /// Sorted.
    links: Vec<PeerId>,
}

impl End {
    fn new(up: u64, down: u64) -> Self {
        Self { up, down, up_free: Duration::ZERO, down_free: Duration::ZERO, links: Vec::new() }
    }
}

impl End {
    fn insert(&mut self, other: PeerId) -> bool {
        let place = self.links.binary_search(&other);
        place.map_err(|place| self.links.insert(place, other)).is_err()
    }

    fn remove(&mut self, other: PeerId) -> bool {
        self.links.binary_search(&other).map(|place| self.links.remove(place)).is_ok()
    }
}

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { ends: vec![End::new(scenario.source_up, scenario.source_up)] }
    }

    /// Peers join in the order of their numbers.
    pub(super) fn join(&mut self, _peer: PeerId, rates: &PeerScenario) {
        self.ends.push(End::new(rates.up, rates.down));
    }

    pub(super) fn link(&mut self, one: PeerId, other: PeerId) -> bool {
        self.ends[other.0 as usize].insert(one) && self.ends[one.0 as usize].insert(other)
    }

    pub(super) fn unlink(&mut self, one: PeerId, other: PeerId) -> bool {
        self.ends[other.0 as usize].remove(one) && self.ends[one.0 as usize].remove(other)
    }

    /// Removes all links of a peer; returns its neighbours.
    pub(super) fn leave(&mut self, peer: PeerId) -> Vec<PeerId> {
        let gone = std::mem::take(&mut self.ends[peer.0 as usize].links);
        for other in &gone {
            self.ends[other.0 as usize].remove(peer);
        }
        gone
    }

    pub(super) fn is_linked(&self, one: PeerId, other: PeerId) -> bool {
        // The coordinator, which has number 0, has far more links than a peer.
        let (few, many) = (one.max(other), one.min(other));
        self.ends.get(few.0 as usize).is_some_and(|end| end.links.binary_search(&many).is_ok())
    }

    /// Sends bytes behind those that were sent before; returns when they have left.
    pub(super) fn send(&mut self, now: Duration, from: PeerId, bytes: u64) -> Duration {
        let sender = &mut self.ends[from.0 as usize];
        sender.up_free = now.max(sender.up_free) + time(bytes, sender.up);
        sender.up_free
    }

    /// The last of these bytes reach the downlink at `now`; returns when they have passed it.
    pub(super) fn receive(&mut self, now: Duration, to: PeerId, bytes: u64) -> Duration {
        let receiver = &mut self.ends[to.0 as usize];
        // The first bytes have come while the last ones were still leaving.
        receiver.down_free = now.max(receiver.down_free + time(bytes, receiver.down));
        receiver.down_free
    }
}

fn time(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes * 8 * 1_000_000_000 / rate.max(1))
}
