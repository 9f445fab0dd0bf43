//! The choice of the next chunk to offer, and of its receiver.

use std::time::Duration;

use super::slots::{self, FEW};
use super::{Exchange, Neighbour};
use crate::PeerId;

/// The most chunks on their way to one neighbour, if there are several.
const FOR_ONE: usize = 2;
/// How many chunks are compared by their number of copies.
const SAMPLE: usize = 24;
/// The most chunks that a peer got first from the source, and that no other peer has reported yet;
/// with few peers and a long way to them, more.
const WINDOW: u32 = 4;

/// A neighbour that can be offered a chunk.
struct Receiver {
    peer: PeerId,
    /// How many chunks were offered to it, or are on their way to it.
    sending: usize,
    /// As `sending`, without those that it cannot have answered yet.
    backlog: usize,
    /// How many chunks it has.
    count: u32,
}

impl Exchange {
    pub(super) fn pick(&mut self, now: Duration) -> Option<(PeerId, u32)> {
        if self.given.is_none() {
            return self.pick_copy();
        }
        let never_given = self.pick_never_given(self.window());
        if never_given.is_some() || !self.is_copy_due(now) {
            return never_given;
        }
        let copy = self.pick_never_given(u32::MAX).or_else(|| self.pick_copy());
        if let Some(given) = &mut self.given {
            given.waiting_since = None;
            if copy.is_some() {
                // Peers lack uplink: the next second copy comes sooner.
                given.copy_delay /= 2;
            }
        }
        copy
    }

    /// A chunk that is here, and a neighbour that lacks it.
    fn pick_copy(&mut self) -> Option<(PeerId, u32)> {
        let mut peers = self.receivers();
        if self.have.length() <= FEW {
            return self.pick_scarce(&peers);
        }
        peers.sort_by_key(|one| (one.backlog, one.count));
        self.pick_fresh(&peers).or_else(|| self.pick_rare(&peers))
    }

    /// Whether a neighbour can be offered a chunk.
    fn is_open(&self, one: &Neighbour) -> bool {
        let most = self.most_for(one).min(one.trusts as usize);
        one.sending.len() < most && !one.silent && !one.have.is_full()
    }

    /// The most chunks on their way to a neighbour: with few neighbours, more, so that all slots
    /// are used; and as many as could leave for it until it answers.
    fn most_for(&self, one: &Neighbour) -> usize {
        let neighbours = self.neighbours.len().max(1);
        FOR_ONE.max(self.slots.allowed() / neighbours) + self.unanswered(one)
    }

    /// How many chunks leave for a neighbour, if all get as many, until it answers an offer.
    fn unanswered(&self, one: &Neighbour) -> usize {
        let share = self.slots.per_chunk() * self.neighbours.len().max(1) as u32;
        let chunks = one.answer.as_nanos().checked_div(share.as_nanos());
        chunks.map_or(0, |chunks| usize::try_from(chunks).unwrap_or(usize::MAX)).min(slots::MOST)
    }

    /// Neighbours that can be offered more, in a random rotation.
    fn receivers(&mut self) -> Vec<Receiver> {
        let open = self.neighbours.iter().filter(|(_, one)| self.is_open(one));
        let mut peers = Vec::with_capacity(self.neighbours.len());
        peers.extend(open.map(|(peer, one)| Receiver {
            peer: *peer,
            sending: one.sending.iter().filter(|chunk| !chunk.is_withdrawn()).count(),
            backlog: one.sending.len().saturating_sub(self.unanswered(one)),
            count: one.have.count(),
        }));
        let turn = self.random.below(peers.len() as u32) as usize;
        peers.rotate_left(turn);
        peers
    }

    /// The chunk with the fewest copies of all, for the neighbour with the fewest chunks. With few
    /// chunks, one that spreads late delays the end.
    fn pick_scarce(&self, peers: &[Receiver]) -> Option<(PeerId, u32)> {
        let mut best = None;
        for Receiver { peer, backlog, count, .. } in peers {
            let Some(neighbour) = self.neighbours.get(peer) else { continue };
            let mut at = 0;
            while let Some(index) = self.have.next_beyond(&neighbour.have, at) {
                at = index + 1;
                let key = (self.copies(index), *count, *backlog);
                if best.is_none_or(|(least, _)| key < least) && !neighbour.is_sending(index) {
                    best = Some((key, (*peer, index)));
                }
            }
        }
        best.map(|(_, pick)| pick)
    }

    /// A chunk that no neighbour had when it came: until others have it, this party is the only one
    /// to pass it on. The one with the fewest copies comes first, so that receivers whose uplinks
    /// are idle can help with all of them.
    fn pick_fresh(&mut self, peers: &[Receiver]) -> Option<(PeerId, u32)> {
        let all = self.neighbours.len();
        while self.fresh.first().is_some_and(|index| usize::from(self.copies(index)) >= all) {
            self.fresh.pop();
        }
        let receiver = |index| peers.iter().find(|one| self.lacks(one.peer, index));
        // One that is stopped lacks the first ones of all for long.
        let useful = self.fresh.iter().take(2 * SAMPLE).filter_map(|index| {
            let copies = self.copies.all(index);
            receiver(index).map(|one| (copies, one.peer, index))
        });
        let fewest = useful.take(SAMPLE).min_by_key(|(copies, ..)| *copies);
        fewest.map(|(_, peer, index)| (peer, index))
    }

    /// The chunk with the fewest copies of a sample.
    fn pick_rare(&mut self, peers: &[Receiver]) -> Option<(PeerId, u32)> {
        peers.iter().find_map(|one| self.rarest_for(one.peer).map(|index| (one.peer, index)))
    }

    fn rarest_for(&mut self, peer: PeerId) -> Option<u32> {
        let start = self.random.below(self.have.length());
        let neighbour = self.neighbours.get(&peer)?;
        let mut best = None;
        let mut at = start;
        let mut wrapped = false;
        for _ in 0..SAMPLE {
            let found = match self.have.next_beyond(&neighbour.have, at) {
                Some(found) => found,
                None if !wrapped => {
                    (wrapped, at) = (true, 0);
                    continue;
                }
                None => break,
            };
            if wrapped && found >= start {
                break;
            }
            if !neighbour.is_sending(found) {
                let copies = self.copies.all(found);
                if best.is_none_or(|(fewest, _)| copies < fewest) {
                    best = Some((copies, found));
                }
            }
            at = found + 1;
        }
        best.map(|(_, index)| index)
    }

    fn lacks(&self, peer: PeerId, index: u32) -> bool {
        let neighbour = self.neighbours.get(&peer);
        neighbour.is_some_and(|one| !one.have.contains(index) && !one.is_sending(index))
    }

    /// The next chunk that the source has not given out, for the neighbour that has passed on most
    /// of what it got, if that has passed on all but fewer than `most`.
    fn pick_never_given(&mut self, most: u32) -> Option<(PeerId, u32)> {
        let peers = self.receivers();
        let given = self.given.as_mut()?;
        let is_needless = |index: u32| self.copies.all(index) > 0 || !self.have.contains(index);
        // One that is promised again may be there twice.
        while given
            .again
            .first()
            .is_some_and(|index| is_needless(*index) || given.first.contains_key(index))
        {
            given.again.pop_first();
        }
        while given.next < self.have.length() && is_needless(given.next) {
            given.next += 1;
        }
        let index = match given.again.first() {
            Some(index) => *index,
            None if given.next < self.have.length() => given.next,
            None => return None,
        };
        let is_sending = |peer| self.neighbours.get(peer).is_some_and(|one| one.is_sending(index));
        let open =
            peers.iter().filter(|one| given.room(one.peer, most) > 0 && !is_sending(&one.peer));
        // A peer without chunks has an idle uplink, and so has one that has passed on all that has
        // arrived.
        let order = |one: &&Receiver| {
            let first = most - given.room(one.peer, most);
            (one.count > 0, first.saturating_sub(one.sending as u32), one.backlog)
        };
        let peer = open.min_by_key(order)?.peer;
        if given.again.pop_first().is_none() {
            given.next += 1;
        }
        given.give(peer, index);
        given.waiting_since = None;
        Some((peer, index))
    }

    /// The most chunks that a peer gets first, before others report them. A single one has no other
    /// to pass them on to.
    fn window(&self) -> u32 {
        match self.neighbours.len() {
            1 => u32::MAX,
            others => WINDOW.max((self.slots.allowed() / others.max(1)) as u32),
        }
    }

    /// Whether peers have had time to pass on what they got: if not, a second copy of a chunk would
    /// be wasted.
    fn is_copy_due(&mut self, now: Duration) -> bool {
        let is_open = self.neighbours.values().any(|one| self.is_open(one));
        let Some(given) = &mut self.given else { return true };
        if !is_open {
            given.waiting_since = None;
            return false;
        }
        let since = *given.waiting_since.get_or_insert(now);
        now >= since + given.copy_delay(self.slots.per_chunk())
    }
}
