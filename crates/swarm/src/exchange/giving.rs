//! Offering chunks to neighbours.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Exchange, FEW, Neighbour, Sending, State, slots};
use crate::bitmap::Bitmap;
use crate::message::Message;
use crate::{Output, PeerId};

/// The most chunks on their way to one neighbour, if there are several.
const FOR_ONE: usize = 2;
/// How many chunks are compared by their number of copies.
const SAMPLE: usize = 24;
/// The most chunks that a peer got first from the source, and that no other peer has reported yet; with few peers and a long way to
/// them, more.
const WINDOW: u32 = 4;
/// How long the source waits before it gives out the first second copy, unless a peer has passed on a chunk before.
const COPY_DELAY: Duration = Duration::from_millis(100);

/// The time in which a neighbour answers an offer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What a source has given out.
pub(crate) struct Given {
    /// The next chunk that was never given.
    next: u32,
    /// Chunks whose only copy is lost.
    again: VecDeque<u32>,
    /// The peer that was given a chunk, until another peer reports it.
    first: BTreeMap<u32, PeerId>,
    /// The number of these for each peer.
    windows: BTreeMap<PeerId, u32>,
    /// Since when all windows are full.
    waiting_since: Option<Duration>,
    /// How long it waits at least before it gives out a second copy.
    copy_delay: Duration,
}

impl Given {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            again: VecDeque::new(),
            first: BTreeMap::new(),
            windows: BTreeMap::new(),
            waiting_since: None,
            copy_delay: COPY_DELAY,
        }
    }

    /// `peer` has reported chunk `index`.
    pub(super) fn reported(&mut self, peer: PeerId, index: u32) {
        if self.first.get(&index).is_some_and(|first| *first != peer) {
            // Peers pass on what they can.
            self.copy_delay = Duration::ZERO;
            self.release(index);
        }
    }

    /// A peer wants a chunk that it had declined or that did not come, and `copies` others have it.
    pub(super) fn wanted(&mut self, index: u32, copies: u16) {
        if copies == 0 && index < self.next && !self.first.contains_key(&index) {
            self.again.push_back(index);
        }
    }

    /// A chunk was not taken.
    fn take_back(&mut self, index: u32) {
        if self.first.contains_key(&index) {
            self.release(index);
            self.again.push_back(index);
        }
    }

    fn release(&mut self, index: u32) {
        let window = self.first.remove(&index).and_then(|first| self.windows.get_mut(&first));
        if let Some(window) = window {
            *window -= 1;
        }
    }

    /// A peer is gone: what only it had, or was to have, is given again.
    pub(super) fn forget(&mut self, peer: PeerId, had: &Bitmap, copies: &[u16]) {
        self.windows.remove(&peer);
        let promised = self.first.iter().filter(|(_, first)| **first == peer);
        let promised: Vec<u32> = promised.map(|(index, _)| *index).collect();
        for index in &promised {
            self.first.remove(index);
        }
        let promised = promised.into_iter().filter(|index| !had.contains(*index));
        let all = had.runs().flatten().chain(promised);
        // Others may be promised to another peer, or not given yet.
        let lost = all.filter(|index| {
            let is_given = *index < self.next && !self.first.contains_key(index);
            copies[*index as usize] == 0 && is_given
        });
        self.again.extend(lost.collect::<Vec<_>>());
    }

    /// How many more chunks a peer may get, of `most`.
    fn room(&self, peer: PeerId, most: u32) -> u32 {
        most.saturating_sub(self.windows.get(&peer).copied().unwrap_or_default())
    }
}

/// A neighbour that can be offered a chunk.
struct Receiver {
    peer: PeerId,
    /// How many chunks were offered to it, or are on their way to it.
    sending: usize,
    /// How many chunks it has.
    count: u32,
}

impl Neighbour {
    /// It has answered an offer after so long. Late answers count little: the offers may have waited behind chunks for the same neighbour.
    fn answered(&mut self, after: Duration) {
        let is_first = self.answer.is_zero();
        self.answer = match is_first || after < self.answer {
            true => after,
            false => (self.answer * 31 + after) / 32,
        };
    }

    fn is_sending(&self, index: u32) -> bool {
        self.sending.iter().any(|sending| sending.index == index)
    }
}

impl Exchange {
    /// The neighbour takes the chunk.
    pub(super) fn accepted(&mut self, from: PeerId, index: u32, levels: u8, now: Duration) {
        // A ticket that was altered may name longer content: what comes cannot prove itself, and its receiver gives up.
        let levels = levels.min(self.geometry.levels());
        // Once: a peer that repeats itself gets no second copy.
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return };
        let chunk = neighbour.sending.iter_mut().find(|one| one.index == index);
        let Some(chunk) = chunk else { return };
        let State::Offered(offered) = chunk.state else { return };
        chunk.state = self.slots.accept(offered);
        neighbour.answered(now.saturating_sub(offered.at));
        self.accepted.push_back((from, index, levels));
        self.send_accepted(now);
    }

    /// Chunks that leave one after the other arrive earlier than those that leave together.
    fn send_accepted(&mut self, now: Duration) {
        while self.slots.may_leave() {
            let Some((to, index, levels)) = self.accepted.pop_front() else { return };
            let sending = self.neighbours.get_mut(&to).map(|one| &mut one.sending);
            let chunk = sending.and_then(|all| all.iter_mut().find(|one| one.index == index));
            // Its receiver may have gone.
            let Some(chunk) = chunk.filter(|one| matches!(one.state, State::Accepted)) else {
                continue;
            };
            chunk.state = self.slots.start(now);
            self.out.push_back(Output::SendChunk { to, index, levels });
            self.slots.stalls_at().into_iter().for_each(|at| self.due_at(at));
        }
    }

    /// The neighbour has the chunk, or expects it from another.
    pub(super) fn declined(&mut self, from: PeerId, index: u32) {
        if self.settle(from, index).is_some() {
            if let Some(given) = &mut self.given {
                given.release(index);
            }
            self.learn(from, index);
        }
    }

    /// The chunk has left for `to`.
    pub(crate) fn sent(&mut self, to: PeerId, index: u32, now: Duration) {
        if let Some(sent) = self.settle(to, index) {
            self.slots.chunk_left(!self.accepted.is_empty(), now);
            self.release_held();
            if !sent.is_wanted {
                self.learn(to, index);
            }
            if let Some(neighbour) = self.neighbours.get_mut(&to) {
                neighbour.trusts = (neighbour.trusts + 1).min(slots::MOST as u32);
            }
        }
        self.fill(now);
    }

    /// Chunks and offers that wait for their receivers take up no slots.
    fn release_held(&mut self) {
        for sending in self.neighbours.values_mut().flat_map(|one| &mut one.sending) {
            self.slots.release_held(sending);
        }
    }

    /// As [`Self::release_held`], for the chunk that began to leave first, if none has left for long.
    fn release_stalled(&mut self, now: Duration) {
        if self.slots.stalls_at().is_none_or(|at| now < at) {
            return;
        }
        let all = self.neighbours.values_mut().flat_map(|one| &mut one.sending);
        let leaving = all.filter_map(|sending| match sending.state {
            State::Leaving { after } => Some((after, sending)),
            State::Offered(_) | State::Accepted | State::Held => None,
        });
        if let Some((_, sending)) = leaving.min_by_key(|(after, _)| *after) {
            self.slots.release(std::mem::replace(&mut sending.state, State::Held));
            self.slots.stalled(now);
        }
    }

    /// A chunk is no longer here, although `to` has accepted it.
    pub(crate) fn unreadable(&mut self, to: PeerId, index: u32, now: Duration) {
        self.have.remove(index);
        if self.settle(to, index).is_some() {
            self.unlearn(to, index);
        }
        if let Some(given) = &mut self.given {
            given.release(index);
        }
        self.fill(now);
    }

    fn settle(&mut self, peer: PeerId, index: u32) -> Option<Sending> {
        let neighbour = self.neighbours.get_mut(&peer)?;
        let at = neighbour.sending.iter().position(|sending| sending.index == index)?;
        let settled = neighbour.sending.swap_remove(at);
        self.slots.release(settled.state);
        self.sending[index as usize] -= 1;
        Some(settled)
    }

    /// Makes offers while there are slots.
    pub(crate) fn fill(&mut self, now: Duration) {
        self.send_accepted(now);
        while self.slots.is_free() {
            let Some((peer, index)) = self.pick(now) else { return };
            let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
            let state = self.slots.take(now);
            neighbour.sending.push(Sending { index, state, is_wanted: false });
            self.sending[index as usize] += 1;
            self.due_at(now + ANSWER_TIMEOUT);
            self.send(peer, Message::Offer(index));
        }
    }

    /// When [`Exchange::fill`] may do more than now.
    pub(super) fn copy_at(&self) -> Option<Duration> {
        let given = self.given.as_ref().filter(|_| self.slots.is_free())?;
        Some(given.waiting_since? + self.copy_delay(given))
    }

    /// When [`Self::withdraw`] has something to do.
    pub(super) fn withdraw_at(&self) -> Option<Duration> {
        let sending = self.neighbours.values().flat_map(|one| &one.sending);
        let offered = sending.filter_map(|chunk| match chunk.state {
            State::Offered(offered) => Some(offered.at + ANSWER_TIMEOUT),
            State::Accepted | State::Leaving { .. } | State::Held => None,
        });
        offered.chain(self.slots.stalls_at()).min()
    }

    /// Withdraws offers that were not answered, so that a silent neighbour uses up no slot, nor one that does not read.
    pub(super) fn withdraw(&mut self, now: Duration) {
        self.release_stalled(now);
        for neighbour in self.neighbours.values_mut() {
            let is_late = |chunk: &Sending| matches!(chunk.state, State::Offered(offered) if offered.at + ANSWER_TIMEOUT <= now);
            for chunk in neighbour.sending.extract_if(.., |chunk| is_late(chunk)) {
                if let Some(given) = &mut self.given {
                    given.take_back(chunk.index);
                }
                self.slots.release(chunk.state);
                self.sending[chunk.index as usize] -= 1;
                neighbour.silent = true;
            }
        }
    }

    fn pick(&mut self, now: Duration) -> Option<(PeerId, u32)> {
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
        peers.sort_by_key(|one| (one.sending, one.count));
        self.pick_fresh(&peers).or_else(|| self.pick_rare(&peers))
    }

    /// Whether a neighbour can be offered a chunk.
    fn is_open(&self, one: &Neighbour) -> bool {
        let most = self.most_for(one).min(one.trusts as usize);
        one.sending.len() < most && !one.silent && !one.have.is_full()
    }

    /// The most chunks on their way to a neighbour: with few neighbours, more, so that all slots are used; and as many as could leave for it
    /// until it answers.
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
            sending: one.sending.len().saturating_sub(self.unanswered(one)),
            count: one.have.count(),
        }));
        let turn = self.random.below(peers.len() as u32) as usize;
        peers.rotate_left(turn);
        peers
    }

    /// The chunk with the fewest copies of all, for the neighbour with the fewest chunks. With few chunks, one that spreads late
    /// delays the end.
    fn pick_scarce(&self, peers: &[Receiver]) -> Option<(PeerId, u32)> {
        let mut best = None;
        for Receiver { peer, sending, count } in peers {
            let Some(neighbour) = self.neighbours.get(peer) else { continue };
            let mut at = 0;
            while let Some(index) = self.have.next_beyond(&neighbour.have, at) {
                at = index + 1;
                let key = (self.copies(index), *count, *sending);
                if best.is_none_or(|(least, _)| key < least) && !neighbour.is_sending(index) {
                    best = Some((key, (*peer, index)));
                }
            }
        }
        best.map(|(_, pick)| pick)
    }

    /// A chunk that no neighbour had when it came: nearly always this party is the only one to pass it on.
    fn pick_fresh(&mut self, peers: &[Receiver]) -> Option<(PeerId, u32)> {
        let all = self.neighbours.len();
        while self.fresh.front().is_some_and(|index| usize::from(self.copies(*index)) >= all) {
            self.fresh.pop_front();
        }
        let candidates = self.fresh.iter().take(SAMPLE);
        candidates.copied().find_map(|index| {
            let lacks = |one: &&Receiver| self.lacks(one.peer, index);
            peers.iter().find(lacks).map(|one| (one.peer, index))
        })
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
                let copies = self.copies(found) + self.sending[found as usize];
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

    /// The next chunk that the source has not given out, for the neighbour that has passed on most of what it got, if that has passed on all but fewer
    /// than `most`.
    fn pick_never_given(&mut self, most: u32) -> Option<(PeerId, u32)> {
        let peers = self.receivers();
        let given = self.given.as_mut()?;
        let is_needless = |index: u32| {
            self.copies[index as usize] + self.sending[index as usize] > 0
                || !self.have.contains(index)
        };
        // One that is promised again may be there twice.
        while given
            .again
            .front()
            .is_some_and(|index| is_needless(*index) || given.first.contains_key(index))
        {
            given.again.pop_front();
        }
        while given.next < self.have.length() && is_needless(given.next) {
            given.next += 1;
        }
        let index = match given.again.front() {
            Some(index) => *index,
            None if given.next < self.have.length() => given.next,
            None => return None,
        };
        let is_sending = |peer| self.neighbours.get(peer).is_some_and(|one| one.is_sending(index));
        let open =
            peers.iter().filter(|one| given.room(one.peer, most) > 0 && !is_sending(&one.peer));
        // A peer without chunks has an idle uplink.
        let order =
            |one: &&Receiver| (one.count > 0, most - given.room(one.peer, most), one.sending);
        let peer = open.min_by_key(order)?.peer;
        if given.again.pop_front().is_none() {
            given.next += 1;
        }
        given.first.insert(index, peer);
        *given.windows.entry(peer).or_default() += 1;
        given.waiting_since = None;
        Some((peer, index))
    }

    /// The most chunks that a peer gets first, before others report them. A single one has no other to pass them on to.
    fn window(&self) -> u32 {
        match self.neighbours.len() {
            1 => u32::MAX,
            others => WINDOW.max((self.slots.allowed() / others.max(1)) as u32),
        }
    }

    /// Whether peers have had time to pass on what they got: if not, a second copy of a chunk would be wasted.
    fn is_copy_due(&mut self, now: Duration) -> bool {
        let is_open = self.neighbours.values().any(|one| self.is_open(one));
        let Some(given) = &mut self.given else { return true };
        if !is_open {
            given.waiting_since = None;
            return false;
        }
        let since = *given.waiting_since.get_or_insert(now);
        self.given.as_ref().is_none_or(|given| now >= since + self.copy_delay(given))
    }

    /// How long the source waits for peers to pass chunks on: as long as a chunk takes to leave, so that a second copy that turns out to be
    /// needless costs no more than the wait.
    fn copy_delay(&self, given: &Given) -> Duration {
        given.copy_delay.max(self.slots.per_chunk())
    }
}
