//! Offering chunks to neighbours, and sending those that are accepted.

use std::time::Duration;

use super::sending::{Offered, Sending, State};
use super::{Exchange, Neighbour, slots};
use crate::message::Message;
use crate::{Output, PeerId};

/// The time in which a neighbour answers an offer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

impl Neighbour {
    /// It has answered an offer after so long. Late answers count little: the offers may have
    /// waited behind chunks for the same neighbour.
    fn answered(&mut self, after: Duration) {
        let is_first = self.answer.is_zero();
        self.answer = match is_first || after < self.answer {
            true => after,
            false => (self.answer * 31 + after) / 32,
        };
    }

    pub(super) fn is_sending(&self, index: u32) -> bool {
        self.sending.iter().any(|sending| sending.index == index)
    }
}

impl Exchange {
    /// The neighbour takes the chunk.
    pub(super) fn accepted(&mut self, from: PeerId, index: u32, levels: u8, now: Duration) {
        // A ticket that was altered may name longer content: what comes cannot prove itself, and
        // its receiver gives up.
        let levels = levels.min(self.geometry.levels());
        // Once: a peer that repeats itself gets no second copy.
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return };
        let chunk = neighbour.sending.iter_mut().find(|one| one.index == index);
        let Some(chunk) = chunk else { return };
        let offered = match chunk.state {
            State::Offered(offered) => offered,
            State::Withdrawn(offered) => {
                self.copies.begin_sending(index);
                let copies = self.copies.present(index);
                self.given.iter_mut().for_each(|given| given.accepted_late(from, index, copies));
                offered
            }
            State::Accepted | State::Leaving { .. } | State::Held => return,
        };
        chunk.state = self.slots.accept(offered);
        neighbour.answered(now.saturating_sub(offered.at).min(ANSWER_TIMEOUT));
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
            self.slots.answered(!self.accepted.is_empty());
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

    /// As [`Self::release_held`], for the chunk that began to leave first, if none has left for
    /// long.
    fn release_stalled(&mut self, now: Duration) {
        if self.slots.stalls_at().is_none_or(|at| now < at) {
            return;
        }
        let all = self.neighbours.values_mut().flat_map(|one| &mut one.sending);
        let leaving = all.filter_map(|sending| match sending.state {
            State::Leaving { after } => Some((after, sending)),
            State::Offered(_) | State::Withdrawn(_) | State::Accepted | State::Held => None,
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
        self.release(&settled);
        Some(settled)
    }

    /// A chunk is no longer offered, or on its way.
    pub(super) fn release(&mut self, sending: &Sending) {
        if !sending.is_withdrawn() {
            self.slots.release(sending.state);
            self.copies.end_sending(sending.index);
        }
    }

    /// Makes offers while there are slots.
    pub(crate) fn fill(&mut self, now: Duration) {
        self.send_accepted(now);
        while self.slots.is_free() {
            let Some((peer, index)) = self.pick(now) else { return };
            let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
            let state = self.slots.take(now);
            neighbour.sending.push(Sending { index, state, is_wanted: false });
            self.copies.begin_sending(index);
            self.due_at(now + ANSWER_TIMEOUT);
            self.send(peer, Message::Offer(index));
        }
    }

    /// When [`Exchange::fill`] may do more than now.
    pub(super) fn copy_at(&self) -> Option<Duration> {
        let given = self.given.as_ref().filter(|_| self.slots.is_free())?;
        Some(given.waiting_since? + given.copy_delay(self.slots.per_chunk()))
    }

    /// When [`Self::withdraw`] has something to do.
    pub(super) fn withdraw_at(&self) -> Option<Duration> {
        let sending = self.neighbours.values().flat_map(|one| &one.sending);
        let offered = sending.filter_map(|chunk| match chunk.state {
            State::Offered(offered) => Some(offered.at + ANSWER_TIMEOUT),
            State::Withdrawn(_) | State::Accepted | State::Leaving { .. } | State::Held => None,
        });
        offered.chain(self.slots.stalls_at()).min()
    }

    /// Withdraws offers that were not answered, so that a silent neighbour uses up no slot, nor one
    /// that does not read. A late answer still counts: its sender expects the chunk.
    pub(super) fn withdraw(&mut self, now: Duration) {
        self.release_stalled(now);
        for (peer, neighbour) in &mut self.neighbours {
            for chunk in &mut neighbour.sending {
                let State::Offered(offered) = chunk.state else { continue };
                if now < offered.at + ANSWER_TIMEOUT {
                    continue;
                }
                if let Some(given) = &mut self.given {
                    given.take_back(*peer, chunk.index);
                }
                self.slots.release(chunk.state);
                self.copies.end_sending(chunk.index);
                chunk.state = State::Withdrawn(Offered { in_slot: false, ..offered });
                neighbour.silent = true;
            }
        }
    }
}
