//! Serving requests in the order of chunks.

use std::time::Duration;

use super::coordinator::Coordinator;
use super::member::Member;
use crate::message::{MAX_REQUESTS, Message, runs_of};
use crate::{Output, PeerId};

impl Coordinator {
    /// A peer waits for a chunk.
    pub(super) fn want(&mut self, peer: PeerId, index: u32, levels: u8, now: Duration) {
        let at_hand = self.cache.contains(index) || self.pending.contains(index);
        let Some(member) = self.members.get_mut(peer) else { return };
        let is_leaving = member.sending.iter().any(|(leaving, _)| *leaving == index);
        if is_leaving || member.wanted.insert(index, levels).is_some() {
            return;
        }
        member.ready += usize::from(at_hand);
        self.requests.add(index, peer, at_hand);
        self.cache.wait(index, now);
        let is_provider = self.owners.promised(index).any(|promised| promised == peer);
        if is_provider && self.distribution.read.contains(index) {
            self.requests.hurry(index);
        }
        self.members.update(peer);
    }

    /// It waits no longer. Returns the levels that it has asked for.
    pub(super) fn forget(&mut self, peer: PeerId, index: u32) -> Option<u8> {
        let member = self.members.get_mut(peer)?;
        let levels = member.wanted.remove(&index)?;
        if !self.requests.is_unserved(index) {
            member.ready -= 1;
        }
        self.requests.remove(index, peer);
        self.members.update(peer);
        Some(levels)
    }

    /// Sends a peer what it waits for and is in the cache, as far as there is room in the uplink.
    pub(super) fn serve(&mut self, peer: PeerId, now: Duration) {
        while self.members.get(peer).is_some_and(Member::has_room) {
            let Some(index) = self.next_for(peer) else { return };
            self.send_chunk(peer, index, now);
        }
    }

    /// The chunk that a peer is sent next: first, those that it provides, then in the order of the
    /// scan.
    fn next_for(&self, peer: PeerId) -> Option<u32> {
        let member = self.members.get(peer)?;
        let start = self.scan.start();
        let wanted = member.wanted.range(start..).chain(member.wanted.range(..start));
        let cached = wanted.map(|(index, _)| *index).filter(|index| self.cache.contains(*index));
        let mut first = None;
        for index in cached {
            if member.promised == 0 || self.owners.promised(index).any(|other| other == peer) {
                return Some(index);
            }
            first = first.or(Some(index));
        }
        first
    }

    /// A chunk is in the cache now: it is sent to all that wait for it and have room in the uplink.
    pub(super) fn arrived(&mut self, index: u32, now: Duration) {
        if self.pending.remove(index).is_none() {
            return;
        }
        let waiting: Vec<PeerId> = self.requests.waiters(index).collect();
        self.cache.insert(index, waiting.len(), self.owners.lacks(index), now);
        for peer in waiting {
            if self.members.get(peer).is_some_and(Member::has_room) {
                self.send_chunk(peer, index, now);
            }
        }
    }

    fn send_chunk(&mut self, to: PeerId, index: u32, now: Duration) {
        let Some(levels) = self.forget(to, index) else { return };
        self.cache.send(index, now);
        self.members.change(to, |member| member.sending.push((index, levels)));
        self.counters.sent += 1;
        self.out.push_back(Output::SendChunk { to, index, levels });
    }

    /// A chunk has left.
    pub(super) fn sent(&mut self, to: PeerId, index: u32, now: Duration) {
        if self.take_sending(to, index, now).is_some() {
            if self.distribution.chunk_left(index) {
                self.counters.distributed = Some(now);
            }
            if self.owners.promised(index).any(|peer| peer == to) {
                self.cache.await_report(index, to);
            }
            self.serve(to, now);
        }
    }

    /// A chunk was evicted before it was read for a peer, which waits for it again.
    pub(super) fn evicted_before(&mut self, to: PeerId, index: u32, now: Duration) {
        if let Some(levels) = self.take_sending(to, index, now) {
            self.want(to, index, levels, now);
            if self.pending.is_from(index, to) {
                self.fetch_again(index, now);
            }
            self.serve(to, now);
        }
    }

    fn take_sending(&mut self, to: PeerId, index: u32, now: Duration) -> Option<u8> {
        let member = self.members.get_mut(to)?;
        let at = member.sending.iter().position(|(sending, _)| *sending == index)?;
        let (_, levels) = member.sending.swap_remove(at);
        self.cache.sent(index, now);
        self.members.update(to);
        Some(levels)
    }

    /// Obtains the next chunks of the scan, as long as there is room in the cache.
    pub(super) fn advance(&mut self, now: Duration) {
        let before = self.scan.obtained();
        while self.may_obtain() {
            let Some(index) = self.next(now) else { break };
            self.scan.obtain(now);
            self.requests.obtained(index);
            let waiting: Vec<PeerId> = self.requests.waiters(index).collect();
            for peer in waiting {
                self.members.change(peer, |member| member.ready += 1);
            }
            self.obtain(index, Vec::new(), now);
        }
        if self.scan.obtained() > before {
            let starving: Vec<PeerId> = self.members.starving.iter().copied().collect();
            starving.into_iter().for_each(|peer| self.move_to_scan(peer));
        }
    }

    /// Whether fewer chunks are on their way than half of the cache holds.
    pub(super) fn may_obtain(&self) -> bool {
        self.pending.len() < (self.cache.capacity() / 2).clamp(1, MAX_REQUESTS)
    }

    pub(super) fn is_full(&self) -> bool {
        self.cache.len() + self.pending.len() >= self.cache.capacity()
    }

    /// The next chunk to obtain, for which there is room in the cache. One that peers wait for is
    /// evicted only for a peer that can be sent nothing else, so that slow peers do not hold up the
    /// others.
    fn next(&mut self, now: Duration) -> Option<u32> {
        let urgent = self.requests.urgent();
        let mut next = urgent.or_else(|| self.next_of_scan(now))?;
        let mut moves = urgent.is_none();
        while self.is_full() {
            let mut evicted = self.cache.evict_idle();
            if evicted.is_none() && !self.members.starving.is_empty() {
                let owners = &self.owners;
                let has_copy = |index| owners.confirmed(index).next().is_some();
                evicted = self.cache.evict_used(now, has_copy);
                if evicted.is_some() {
                    (next, moves) = (self.next_of_starving().unwrap_or(next), true);
                }
            }
            let evicted = evicted?;
            self.out.push_back(Output::Evict(evicted));
            self.withdraw(evicted);
        }
        if moves {
            self.scan.pass(next);
        }
        Some(next)
    }

    /// The next chunk in order that a peer needs soon. A peer that has fallen behind does not make
    /// the scan go round: it is told where the scan is.
    fn next_of_scan(&self, now: Duration) -> Option<u32> {
        let all_starve = self.members.starving.len() == self.members.waiting.len();
        let may_jump = all_starve || now >= self.scan.jumps_at();
        let is_due = |index: u32| may_jump || self.scan.is_in_step(index);
        let next =
            self.requests.next(self.scan.start()).filter(|_| !self.members.hungry.is_empty())?;
        let is_needed = self.requests.waiters(next).any(|peer| self.members.hungry.contains(&peer));
        if is_needed && is_due(next) {
            return Some(next);
        }
        self.next_of_starving().filter(|index| is_due(*index))
    }

    /// When [`Self::advance`] does what it does not do now.
    pub(super) fn advance_at(&self) -> Option<Duration> {
        if self.members.starving.is_empty() || !self.may_obtain() {
            return None;
        }
        let has_room = !self.is_full() || self.cache.has_idle();
        let evict = if has_room { None } else { self.cache.evictable_at() };
        evict.max(Some(self.scan.jumps_at()))
    }

    /// The first chunk of the scan that a peer waits for which can be sent nothing else.
    fn next_of_starving(&self) -> Option<u32> {
        let starving = self.members.starving.iter().filter_map(|peer| self.members.get(*peer));
        let wanted = starving.filter_map(|member| self.nearest(member));
        wanted.min_by_key(|index| self.scan.distance(*index))
    }

    /// What the scan reaches first of the chunks that a peer waits for.
    fn nearest(&self, member: &Member) -> Option<u32> {
        let mut next = member.wanted.range(self.scan.start()..).chain(member.wanted.iter());
        next.next().map(|(index, _)| *index)
    }

    /// A chunk is neither in the cache nor on its way into it, although peers may wait for it.
    pub(super) fn withdraw(&mut self, index: u32) {
        let waiting: Vec<PeerId> = self.requests.waiters(index).collect();
        self.requests.lost(index);
        for peer in waiting {
            self.members.change(peer, |member| member.ready -= 1);
        }
    }

    /// Tells a peer where the scan is, if it waits only for chunks that the scan does not reach
    /// soon. Its requests are dropped, and it makes others.
    pub(super) fn move_to_scan(&mut self, peer: PeerId) {
        if !self.members.starving.contains(&peer) {
            return;
        }
        let Some(member) = self.members.get(peer) else { return };
        let Some(since) = member.scanning else { return };
        // Only after the scan has moved on: a peer that lacks nothing near it requests the same
        // again.
        if self.scan.obtained() < since + MAX_REQUESTS as u64 {
            return;
        }
        let Some(nearest) = self.nearest(member) else { return };
        if self.scan.is_in_step(nearest) {
            return;
        }
        let dropped: Vec<u32> = member.wanted.keys().copied().collect();
        if let Some(member) = self.members.get_mut(peer) {
            member.scanning = Some(self.scan.obtained());
        }
        for index in &dropped {
            self.forget(peer, *index);
        }
        self.send(peer, Message::Scan(self.scan.position(), runs_of(&dropped)));
    }
}
