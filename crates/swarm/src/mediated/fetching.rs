//! Obtaining chunks: from a provider, or from the source.

use std::time::Duration;

use super::coordinator::Coordinator;
use crate::message::Message;
use crate::{Output, PeerId};

/// A provider that has not answered so often in a row is not used.
const MOST_FAILURES: u8 = 4;
/// How many of the peers that have all chunks are compared.
const SAMPLE: usize = 8;

impl Coordinator {
    /// Starts to obtain a chunk from a party that was not tried.
    pub(super) fn obtain(&mut self, index: u32, tried: Vec<PeerId>, now: Duration) {
        let provider = self.provider(index, &tried);
        self.pending.add(index, provider, tried, now);
        let Some(provider) = provider else {
            self.counters.loads += 1;
            self.counters.source_reads += u64::from(!self.distribution.read.insert(index));
            return self.out.push_back(Output::Load(index));
        };
        self.counters.fetches += 1;
        if let Some(member) = self.members.get_mut(provider) {
            member.fetches += 1;
        }
        self.send(provider, Message::Fetch(index));
    }

    /// Whether a peer is known to have the chunk.
    pub(super) fn has_copy(&self, index: u32) -> bool {
        self.owners.confirmed(index).next().is_some() || !self.members.complete.is_empty()
    }

    /// The peer from which a chunk comes soonest; None if only the source has it.
    fn provider(&self, index: u32, tried: &[PeerId]) -> Option<PeerId> {
        // Others come first from chunk to chunk.
        let first = PeerId(index.wrapping_mul(0x9e37_79b9) % self.members.next_id().0);
        let complete = &self.members.complete;
        let complete = complete.range(first..).chain(complete.range(..first));
        let all = self.owners.confirmed(index).chain(complete.copied().take(SAMPLE));
        let best = self.fastest(all, tried);
        // One that was sent its copy, or had one before it said so. Before the first reading, none
        // can.
        best.or_else(|| {
            let waits =
                |peer| self.members.get(peer).is_some_and(|one| one.wanted.contains_key(&index));
            let is_read = self.distribution.read.contains(index);
            let promised = self.owners.promised(index).filter(|_| is_read);
            self.fastest(promised.filter(|peer| !waits(*peer)), tried)
        })
    }

    fn fastest(&self, all: impl Iterator<Item = PeerId>, tried: &[PeerId]) -> Option<PeerId> {
        let open = all.filter(|peer| !tried.contains(peer)).filter_map(|peer| {
            let member = self.members.get(peer)?;
            let time = member.latency * (member.fetches + 1);
            (member.failures < MOST_FAILURES).then_some((time, member.fetches, peer))
        });
        open.min().map(|(_, _, peer)| peer)
    }

    /// A right chunk has come from a peer.
    pub(super) fn fetched(&mut self, from: PeerId, index: u32, now: Duration) {
        // One that comes late, or was not asked for, is not kept.
        let Some(took) = self.pending.answered(index, from, now) else { return };
        if let Some(member) = self.members.get_mut(from) {
            member.answered(took);
        }
        self.out.push_back(Output::Keep { index, provider: from });
        self.arrived(index, now);
    }

    /// A provider does not have the chunk, or cannot send it now.
    pub(super) fn declined(&mut self, from: PeerId, index: u32, now: Duration) {
        if !self.pending.is_from(index, from) {
            return;
        }
        if !self.owners.promised(index).any(|peer| peer == from) {
            self.owners.remove(index, from);
            self.cache.reported(index, from, self.owners.lacks(index));
            self.members.complete.remove(&from);
        }
        self.fetch_again(index, now);
    }

    /// Fetches elsewhere what was not answered in time.
    pub(super) fn fetch_elsewhere(&mut self, now: Duration) {
        for (index, from) in self.pending.late(now) {
            if let Some(member) = self.members.get_mut(from) {
                member.failures = member.failures.saturating_add(1);
            }
            self.fetch_again(index, now);
        }
    }

    /// Obtains a chunk from another party, if a peer still waits for it.
    pub(super) fn fetch_again(&mut self, index: u32, now: Duration) {
        let Some(mut fetch) = self.pending.remove(index) else { return };
        if let Some(member) = self.members.get_mut(fetch.from) {
            member.fetches -= 1;
        }
        if self.requests.waiters(index).next().is_some() {
            fetch.tried.push(fetch.from);
            self.obtain(index, fetch.tried, now);
        }
    }

    /// The source no longer has a chunk: it is lost, unless a provider comes back.
    pub(super) fn source_failed(&mut self, index: u32) {
        if self.pending.remove(index).is_none() {
            return;
        }
        self.distribution.unreadable.insert(index);
        let waiting: Vec<PeerId> = self.requests.waiters(index).collect();
        for peer in waiting {
            self.forget(peer, index);
        }
        let promised: Vec<PeerId> = self.owners.promised(index).collect();
        promised.iter().for_each(|peer| self.withdraw_promise(index, *peer));
        let all: Vec<PeerId> = self.members.present.clone();
        all.into_iter().for_each(|peer| self.send_runs(peer, &[index], Message::Lost));
        promised.into_iter().for_each(|peer| self.place(peer));
    }
}
