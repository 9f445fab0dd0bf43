//! Which peers wait for which chunks.

use std::collections::BTreeSet;

use crate::PeerId;

/// The requests that no chunk was sent for yet.
#[derive(Default)]
pub(super) struct Requests {
    waiting: BTreeSet<(u32, PeerId)>,
    /// Requested chunks that are neither in the cache nor on their way into it.
    unserved: BTreeSet<u32>,
    /// Those of them that a peer needs as their provider, in place of one that is gone.
    urgent: BTreeSet<u32>,
}

impl Requests {
    /// A peer requests a chunk, which may be in the cache or on its way into it.
    pub(super) fn add(&mut self, index: u32, peer: PeerId, at_hand: bool) {
        self.waiting.insert((index, peer));
        if !at_hand {
            self.unserved.insert(index);
        }
    }

    /// The chunk is obtained before others, if a peer waits for it.
    pub(super) fn hurry(&mut self, index: u32) {
        if self.unserved.contains(&index) {
            self.urgent.insert(index);
        }
    }

    /// It no longer waits.
    pub(super) fn remove(&mut self, index: u32, peer: PeerId) {
        self.waiting.remove(&(index, peer));
        if self.unserved.contains(&index) && self.waiters(index).next().is_none() {
            self.obtained(index);
        }
    }

    /// The peers that wait for a chunk.
    pub(super) fn waiters(&self, index: u32) -> impl Iterator<Item = PeerId> + '_ {
        let all = (index, PeerId(0))..=(index, PeerId(u32::MAX));
        self.waiting.range(all).map(|(_, peer)| *peer)
    }

    /// The chunk is in the cache, or on its way into it.
    pub(super) fn obtained(&mut self, index: u32) {
        self.unserved.remove(&index);
        self.urgent.remove(&index);
    }

    /// It is not any more.
    pub(super) fn lost(&mut self, index: u32) {
        if self.waiters(index).next().is_some() {
            self.unserved.insert(index);
        }
    }

    /// Whether the chunk must be obtained.
    pub(super) fn is_unserved(&self, index: u32) -> bool {
        self.unserved.contains(&index)
    }

    /// The first chunk to obtain before others.
    pub(super) fn urgent(&self) -> Option<u32> {
        self.urgent.first().copied()
    }

    /// The next chunk to obtain, at or behind `position`, or from the beginning.
    pub(super) fn next(&self, position: u32) -> Option<u32> {
        self.unserved.range(position..).next().or_else(|| self.unserved.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_goes_round() {
        let mut requests = Requests::default();
        for (index, peer) in [(3, 1), (3, 2), (9, 1)] {
            requests.add(index, PeerId(peer), false);
        }
        requests.add(5, PeerId(1), true);
        assert_eq!([0, 4, 10].map(|at| requests.next(at)), [Some(3), Some(9), Some(3)]);
        requests.obtained(3);
        assert_eq!(requests.next(0), Some(9));
        assert!(requests.waiters(3).eq([PeerId(1), PeerId(2)]));
        requests.lost(3);
        assert!(requests.is_unserved(3) && !requests.is_unserved(5));
    }

    #[test]
    fn a_chunk_without_waiters_is_not_obtained() {
        let mut requests = Requests::default();
        requests.add(3, PeerId(1), false);
        requests.add(3, PeerId(2), false);
        requests.hurry(3);
        requests.hurry(4);
        requests.remove(3, PeerId(1));
        assert_eq!((requests.next(0), requests.urgent()), (Some(3), Some(3)));
        requests.remove(3, PeerId(2));
        assert_eq!((requests.next(0), requests.urgent()), (None, None));
        requests.lost(3);
        assert_eq!(requests.next(0), None);
    }
}
