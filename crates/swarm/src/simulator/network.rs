//! Links of the simulated network: each party has an uplink and a downlink.

use std::time::Duration;

use super::scenario::{PeerScenario, Scenario};
use crate::PeerId;

pub(super) struct Network {
    /// By the number of the peer; the coordinator is number 0.
    ends: Vec<End>,
    /// How many connections there were.
    made: u32,
}

struct End {
    /// Bits per second.
    up: u64,
    down: u64,
    up_free: Duration,
    down_free: Duration,
    /// Sorted, each with its number among all connections.
    links: Vec<(PeerId, u32)>,
}

impl End {
    fn new(up: u64, down: u64) -> Self {
        Self { up, down, up_free: Duration::ZERO, down_free: Duration::ZERO, links: Vec::new() }
    }
}

impl End {
    fn find(&self, other: PeerId) -> Result<usize, usize> {
        self.links.binary_search_by_key(&other, |(peer, _)| *peer)
    }

    fn insert(&mut self, other: PeerId, number: u32) -> bool {
        self.find(other).map_err(|place| self.links.insert(place, (other, number))).is_err()
    }

    fn remove(&mut self, other: PeerId) -> bool {
        self.find(other).map(|place| self.links.remove(place)).is_ok()
    }
}

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { ends: vec![End::new(scenario.source.up, scenario.source.up)], made: 0 }
    }

    /// Peers join in the order of their numbers.
    pub(super) fn join(&mut self, _peer: PeerId, rates: &PeerScenario) {
        self.ends.push(End::new(rates.up, rates.down));
    }

    pub(super) fn link(&mut self, one: PeerId, other: PeerId) -> bool {
        self.made += 1;
        let number = self.made;
        self.ends[other.0 as usize].insert(one, number)
            && self.ends[one.0 as usize].insert(other, number)
    }

    pub(super) fn unlink(&mut self, one: PeerId, other: PeerId) -> bool {
        self.ends[other.0 as usize].remove(one) && self.ends[one.0 as usize].remove(other)
    }

    /// Removes all links of a peer; returns its neighbours.
    pub(super) fn leave(&mut self, peer: PeerId) -> Vec<PeerId> {
        let gone = std::mem::take(&mut self.ends[peer.0 as usize].links);
        let gone: Vec<PeerId> = gone.into_iter().map(|(other, _)| other).collect();
        for other in &gone {
            self.ends[other.0 as usize].remove(peer);
        }
        gone
    }

    pub(super) fn is_linked(&self, one: PeerId, other: PeerId) -> bool {
        self.link_of(one, other).is_some()
    }

    /// The number of the connection of two parties.
    pub(super) fn link_of(&self, one: PeerId, other: PeerId) -> Option<u32> {
        // The coordinator, which has number 0, has far more links than a peer.
        let few = one.max(other);
        let many = one.min(other);
        let end = self.ends.get(few.0 as usize)?;
        end.find(many).ok().map(|place| end.links[place].1)
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
