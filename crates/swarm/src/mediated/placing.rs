//! Choosing the providers of chunks, and replacing those that leave.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::Placement;
use super::coordinator::Coordinator;
use super::member::Member;
use super::owners::Confirmed;
use crate::PeerId;
use crate::message::{MAX_REQUESTS, Message};

/// Providers of further chunks are chosen when a peer has fewer left to receive.
const LOW: usize = 8;
/// Then each peer gets about so many more.
const ROUND: usize = 12;
/// A peer that has more left to receive is too slow to get others. So all of them fit into its
/// requests: the providers of a chunk wait for it at the same time, and it is read once.
const BACKLOG: usize = MAX_REQUESTS - ROUND;

impl Coordinator {
    /// A peer reports chunks that it has received, or had when it came.
    pub(super) fn has(&mut self, from: PeerId, runs: &[Range<u32>], now: Duration) {
        let all = self.geometry.chunks();
        let Some(member) = self.members.get_mut(from) else { return };
        let count: u64 = runs.iter().map(|run| u64::from(run.end - run.start)).sum();
        let chunks = u64::from(member.chunks) + count;
        if chunks > u64::from(all) || runs.last().is_some_and(|run| run.end > all) {
            // It reports a chunk twice, or one that there is not.
            return self.disconnect(from, now);
        }
        member.chunks = chunks as u32;
        let is_complete = member.chunks == all;
        if !std::mem::replace(&mut member.is_present, true) {
            self.members.present.push(from);
            let unreadable: Vec<u32> = self.distribution.unreadable.runs().flatten().collect();
            self.send_runs(from, &unreadable, Message::Lost);
        }
        for index in runs.iter().cloned().flatten() {
            self.confirm(index, from);
        }
        if is_complete {
            self.members.complete.insert(from);
        }
        self.place(from);
        self.start_scan(from);
    }

    /// A peer that was asked to hold copies has some already.
    pub(super) fn provides(&mut self, from: PeerId, runs: &[Range<u32>], now: Duration) {
        let all = self.geometry.chunks();
        let Some(member) = self.members.get_mut(from) else { return };
        let count: usize = runs.iter().map(|run| (run.end - run.start) as usize).sum();
        if count > member.asked || runs.last().is_some_and(|run| run.end > all) {
            return self.disconnect(from, now);
        }
        member.asked -= count;
        for index in runs.iter().cloned().flatten() {
            self.confirm(index, from);
        }
        self.place(from);
    }

    fn confirm(&mut self, index: u32, peer: PeerId) {
        let confirmed = self.owners.confirm(index, peer);
        let lacks = self.owners.lacks(index);
        self.cache.reported(index, peer, lacks);
        match confirmed {
            Some(Confirmed::Kept) => self.promised_less(peer),
            Some(Confirmed::Replaced(other)) => {
                self.cache.reported(index, other, lacks);
                self.promised_less(other);
            }
            Some(Confirmed::Added) | None => {}
        }
        if self.distribution.unreadable.remove(index) {
            let all = self.members.present.clone();
            all.into_iter().for_each(|other| self.send_runs(other, &[index], Message::Have));
        }
    }

    /// A peer is not to receive a chunk any more.
    pub(super) fn withdraw_promise(&mut self, index: u32, peer: PeerId) {
        if self.owners.promised(index).any(|promised| promised == peer) {
            self.owners.remove(index, peer);
            self.cache.reported(index, peer, self.owners.lacks(index));
            self.promised_less(peer);
        }
    }

    fn promised_less(&mut self, peer: PeerId) {
        if let Some(member) = self.members.get_mut(peer) {
            member.promised = member.promised.saturating_sub(1);
        }
        self.start_scan(peer);
    }

    /// Chooses providers for the next chunks, if a peer is about to have received its own.
    pub(super) fn place(&mut self, peer: PeerId) {
        if !self.distribution.has_started() {
            if self.members.present.len() < self.settings.wait.max(1) {
                return;
            }
            self.distribution.placed = Some(0);
        }
        let mut chosen = BTreeMap::new();
        let is_low = |member: &Member| member.is_present && member.promised < LOW;
        while !self.distribution.is_placed() && self.members.get(peer).is_some_and(is_low) {
            match self.settings.placement {
                Placement::Stripes => self.place_stripes(&mut chosen),
                Placement::Blocks => self.place_blocks(&mut chosen),
            }
        }
        self.tell_providers(chosen);
        if self.distribution.is_placed() && !self.scan.is_running {
            let all = self.members.present.clone();
            all.into_iter().for_each(|peer| self.start_scan(peer));
        }
    }

    /// Gives about [`ROUND`] chunks to each peer that keeps up.
    fn place_stripes(&mut self, chosen: &mut BTreeMap<PeerId, Vec<u32>>) {
        let Some(placed) = self.distribution.placed else { return };
        let promised = |peer: &PeerId| self.members.get(*peer).map_or(0, |one| one.promised);
        let keeps_up = |peer: &PeerId| promised(peer) <= BACKLOG;
        let peers: Vec<PeerId> = self.members.present.iter().copied().filter(keeps_up).collect();
        let count = (ROUND * peers.len()).div_ceil(self.owners.replicas()) as u32;
        let end = placed.saturating_add(count).min(self.geometry.chunks());
        for index in placed..end {
            self.place_chunk(index, index as usize, &peers, chosen);
        }
        self.distribution.placed = Some(end);
    }

    /// Gives every peer that is there its blocks.
    fn place_blocks(&mut self, chosen: &mut BTreeMap<PeerId, Vec<u32>>) {
        let chunks = self.geometry.chunks();
        let peers = self.members.present.clone();
        for index in 0..chunks {
            let block = u64::from(index) * peers.len() as u64 / u64::from(chunks);
            self.place_chunk(index, block as usize, &peers, chosen);
        }
        self.distribution.placed = Some(chunks);
    }

    /// Gives a chunk to the peers from `first` on, as far as it has too few copies.
    fn place_chunk(
        &mut self,
        index: u32,
        first: usize,
        peers: &[PeerId],
        chosen: &mut BTreeMap<PeerId, Vec<u32>>,
    ) {
        let mut needed = self.owners.vacant(index);
        for at in 0..peers.len() {
            let peer = peers[(first + at) % peers.len()];
            if needed == 0 {
                return;
            }
            needed -= usize::from(self.promise(index, peer, chosen));
        }
    }

    /// A peer is to receive a chunk. False if it is, or has it, already.
    fn promise(
        &mut self,
        index: u32,
        peer: PeerId,
        chosen: &mut BTreeMap<PeerId, Vec<u32>>,
    ) -> bool {
        let Some(member) = self.members.get_mut(peer) else { return false };
        let is_new = self.owners.promise(index, peer);
        if is_new {
            chosen.entry(peer).or_default().push(index);
            member.promised += 1;
            member.asked += 1;
            if member.wanted.contains_key(&index) && self.distribution.read.contains(index) {
                self.requests.hurry(index);
            }
        }
        is_new
    }

    fn tell_providers(&mut self, chosen: BTreeMap<PeerId, Vec<u32>>) {
        for (peer, chunks) in chosen {
            self.send_runs(peer, &chunks, Message::Provide);
        }
    }

    /// A peer is gone: others provide what it has provided.
    pub(super) fn replace(&mut self, gone: PeerId) {
        let mut chosen = BTreeMap::new();
        let placed = self.distribution.placed.unwrap_or_default();
        let vacated = self.owners.remove_all(gone).into_iter();
        let owners = &self.owners;
        self.cache.forget(gone, |index| owners.lacks(index));
        for index in vacated.filter(|index| *index < placed) {
            let count = self.members.present.len();
            let order = (0..count).map(|at| self.members.present[(index as usize + at) % count]);
            let mut order = order.take(self.owners.replicas() + 1);
            if let Some(peer) = order.find(|peer| !self.owners.names(index, *peer)) {
                self.promise(index, peer, &mut chosen);
            }
        }
        self.tell_providers(chosen);
    }

    /// Starts the scan when one peer has received all chunks that it is to provide, and there are
    /// no more to choose. All peers are told the same position, so that they go on in step. In
    /// blocks, the peers of the first are done long before all chunks were read.
    fn start_scan(&mut self, idle: PeerId) {
        if !self.distribution.is_placed() || !self.is_idle(&idle) {
            return;
        }
        if self.scan.is_running {
            self.tell_scan(idle);
        } else if self.settings.placement == Placement::Stripes || !self.has_unread() {
            self.start_all();
        }
    }

    fn start_all(&mut self) {
        self.scan.is_running = true;
        let all = self.members.present.clone();
        all.into_iter().for_each(|peer| self.tell_scan(peer));
    }

    fn tell_scan(&mut self, peer: PeerId) {
        if let Some(member) = self.members.get_mut(peer) {
            member.scanning = Some(self.scan.obtained());
            self.send(peer, Message::Scan(self.scan.position(), Vec::new()));
        }
    }

    /// Whether a chunk is to be given to a provider that was not read yet.
    fn has_unread(&mut self) -> bool {
        let owners = &self.owners;
        self.distribution.has_unread(|index| owners.promised(index).next().is_some())
    }

    /// When the scan starts at the latest: a peer that does not request what it is to provide holds
    /// up no other.
    pub(super) fn scan_at(&self) -> Option<Duration> {
        let starts = self.distribution.is_placed() && !self.scan.is_running;
        let waits = starts && self.members.present.iter().any(|peer| self.is_idle(peer));
        waits.then(|| self.scan.jumps_at())
    }

    /// Whether a peer has received all that it is to provide, lacks other chunks, and was not told
    /// where the scan is.
    fn is_idle(&self, peer: &PeerId) -> bool {
        let is_idle = |one: &Member| one.is_present && one.promised == 0 && one.scanning.is_none();
        self.members.get(*peer).is_some_and(is_idle) && !self.members.complete.contains(peer)
    }

    pub(super) fn start_late(&mut self, now: Duration) {
        if self.scan_at().is_some_and(|at| at <= now) {
            self.start_all();
        }
    }
}
