//! The coordinator of a share in mediated mode.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::Settings;
use super::cache::Cache;
use super::counters::Counters;
use super::distribution::Distribution;
use super::member::Member;
use super::members::Members;
use super::owners::Owners;
use super::pending::Pending;
use super::requests::Requests;
use super::scan::Scan;
use crate::bitmap::Bitmap;
use crate::coordinator::Input;
use crate::message::{MAX_REQUESTS, MAX_RUNS, Message, runs_of};
use crate::{Geometry, Output, PeerId};

/// The state of a coordinator. Time is the duration since any fixed moment, which does not go back.
pub struct Coordinator {
    pub(super) geometry: Geometry,
    pub(super) settings: Settings,
    pub(super) members: Members,
    pub(super) owners: Owners,
    pub(super) cache: Cache,
    pub(super) requests: Requests,
    pub(super) pending: Pending,
    pub(super) distribution: Distribution,
    pub(super) scan: Scan,
    pub(super) counters: Counters,
    pub(super) out: VecDeque<Output>,
}

impl Coordinator {
    /// The coordinator of a content that the source has in full.
    pub fn new(geometry: Geometry, settings: Settings) -> Self {
        let chunks = geometry.chunks();
        Self {
            geometry,
            settings,
            members: Members::new(),
            owners: Owners::new(chunks, settings.replicas),
            cache: Cache::new(settings.cache),
            requests: Requests::default(),
            pending: Pending::default(),
            distribution: Distribution::new(chunks),
            scan: Scan::new(chunks),
            counters: Counters::default(),
            out: VecDeque::new(),
        }
    }

    /// The number of the next peer that joins.
    pub fn next_id(&self) -> PeerId {
        self.members.next_id()
    }

    /// The peers that are there.
    pub fn members(&self) -> impl Iterator<Item = (PeerId, &Member)> {
        self.members.iter()
    }

    /// The identities that were expelled for wrong bytes.
    pub fn expelled(&self) -> &BTreeSet<[u8; 32]> {
        self.members.expelled()
    }

    /// The chunks that could not be read from the source.
    pub fn unreadable(&self) -> &Bitmap {
        &self.distribution.unreadable
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input) {
        let had_started = self.distribution.has_started();
        match input {
            Input::Joined(identity) => self.joined(identity),
            Input::Message(from, message) => self.message(from, message, now),
            Input::Left(peer) => self.left(peer, now),
            Input::Sent { to, index } => self.sent(to, index, now),
            Input::Unreadable { to, index } => self.evicted_before(to, index, now),
            Input::Chunk { from, index, good: true } => self.fetched(from, index, now),
            Input::Chunk { from, good: false, .. } => self.expel(from, now),
            Input::Loaded { index, good: true } => self.arrived(index, now),
            Input::Loaded { index, good: false } => self.source_failed(index),
        }
        if !had_started && self.distribution.has_started() {
            self.scan.wait_from(now);
        }
        self.start_late(now);
        self.advance(now);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        [self.pending.late_at(), self.advance_at(), self.scan_at()].into_iter().flatten().min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.fetch_elsewhere(now);
        self.start_late(now);
        self.advance(now);
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    pub(super) fn send(&mut self, to: PeerId, message: Message) {
        self.out.push_back(Output::Send(to, message));
    }

    pub(super) fn send_runs(
        &mut self,
        to: PeerId,
        chunks: &[u32],
        message: fn(Vec<Range<u32>>) -> Message,
    ) {
        for part in runs_of(chunks).chunks(MAX_RUNS) {
            self.send(to, message(part.to_vec()));
        }
    }

    /// Disconnects a peer that broke the rules; without a proof of wrong bytes, it may come back.
    pub(super) fn disconnect(&mut self, peer: PeerId, now: Duration) {
        self.out.push_back(Output::Disconnect(peer));
        self.left(peer, now);
    }

    fn joined(&mut self, identity: [u8; 32]) {
        let peer = self.members.next_id();
        if !self.members.join(identity) {
            self.out.push_back(Output::Disconnect(peer));
        }
    }

    fn message(&mut self, from: PeerId, message: Message, now: Duration) {
        let Some(member) = self.members.get(from) else { return };
        match message {
            Message::Have(runs) => self.has(from, &runs, now),
            Message::Provide(runs) => self.provides(from, &runs, now),
            Message::Request(requests) if member.is_present => {
                self.requested(from, &requests, now);
            }
            Message::Decline(index) => self.declined(from, index, now),
            _ => {}
        }
    }

    /// A peer has sent wrong bytes, as the coordinator itself has seen.
    fn expel(&mut self, peer: PeerId, now: Duration) {
        if self.members.expel(peer) {
            self.disconnect(peer, now);
        }
    }

    fn left(&mut self, peer: PeerId, now: Duration) {
        let Some(gone) = self.members.remove(peer) else { return };
        for index in gone.wanted.into_keys() {
            self.requests.remove(index, peer);
            self.cache.give_up(index, now);
        }
        for (index, _) in gone.sending {
            self.cache.sent(index, now);
        }
        self.replace(peer);
        let fetching = self.pending.iter().filter(|(_, from)| *from == peer);
        let fetching: Vec<u32> = fetching.map(|(index, _)| index).collect();
        for index in fetching {
            self.fetch_again(index, now);
        }
        // Those that are left may wait for the one that has gone.
        let all = self.members.present.clone();
        all.into_iter().for_each(|peer| self.place(peer));
    }

    fn requested(&mut self, from: PeerId, requests: &[(u32, u8)], now: Duration) {
        let chunks = self.geometry.chunks();
        let levels = self.geometry.levels();
        let Some(member) = self.members.get(from) else { return };
        let outstanding = member.wanted.len() + member.sending.len() + requests.len();
        let valid = requests.iter().all(|(index, deep)| *index < chunks && *deep <= levels);
        if outstanding > MAX_REQUESTS || !valid {
            return self.disconnect(from, now);
        }
        let mut lost = Vec::new();
        for (index, levels) in requests {
            if self.distribution.unreadable.contains(*index) && !self.has_copy(*index) {
                lost.push(*index);
                self.withdraw_promise(*index, from);
            } else {
                self.want(from, *index, *levels, now);
                // It does not have the chunk that is fetched from it: its request was late, and
                // each would wait for the other.
                if self.pending.is_from(*index, from) {
                    self.fetch_again(*index, now);
                }
            }
        }
        lost.sort_unstable();
        lost.dedup();
        self.send_runs(from, &lost, Message::Lost);
        self.place(from);
        self.serve(from, now);
        self.move_to_scan(from);
    }
}
