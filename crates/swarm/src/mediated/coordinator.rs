//! The coordinator of a share in mediated mode.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::Settings;
use super::cache::Cache;
use super::owners::Owners;
use super::pending::Pending;
use super::requests::Requests;
use crate::bitmap::Bitmap;
use crate::coordinator::Input;
use crate::message::{MAX_REQUESTS, MAX_RUNS, Message, runs_of};
use crate::{Geometry, Output, PeerId};

/// The most chunks that wait in the uplink for one peer.
const QUEUE: usize = 4;
/// For each peer, so many chunks are obtained before it can be sent them.
const PREFETCH: usize = 16;

/// One peer.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its identity, an Ed25519 public key.
    pub identity: [u8; 32],
    /// How many chunks it has reported.
    pub chunks: u32,
    /// Whether it has said that it is there.
    pub(super) is_present: bool,
    /// Whether it was told where the scan is, and how many chunks had been obtained then.
    pub(super) scanning: Option<u64>,
    /// What it waits for, with the levels that it has asked for.
    pub(super) wanted: BTreeMap<u32, u8>,
    /// How many of these are in the cache, or on their way into it.
    pub(super) ready: usize,
    /// What is in the uplink for it.
    pub(super) sending: Vec<(u32, u8)>,
    /// How many chunks it is to receive as their provider.
    pub(super) promised: usize,
    /// How many chunks it may say that it provides.
    pub(super) asked: usize,
    /// How many chunks are being fetched from it.
    pub(super) fetches: u32,
    /// The time of a fetch, as a moving average.
    pub(super) latency: Duration,
    /// How many fetches it has not answered, since the last answer.
    pub(super) failures: u8,
}

impl Member {
    pub(super) fn has_room(&self) -> bool {
        self.sending.len() < QUEUE
    }

    /// Whether it waits for a chunk that is to be obtained, and for few others.
    fn is_hungry(&self) -> bool {
        self.ready < PREFETCH.min(self.wanted.len())
    }

    /// Whether it could be sent a chunk, but none that it waits for is in the cache or on its way into it.
    fn is_starving(&self) -> bool {
        self.has_room() && self.ready == 0 && !self.wanted.is_empty()
    }
}

/// What a coordinator has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chunks requested from providers.
    pub fetches: u64,
    /// Chunks sent to peers.
    pub sent: u64,
    /// Chunks read from the source.
    pub loads: u64,
    /// Of these, those that were read before, since no peer that has them was known.
    pub source_reads: u64,
    /// When every chunk had left the coordinator once: the end of the distribution. `None` before.
    pub distributed: Option<Duration>,
}

impl Counters {
    /// Chunks that were sent from the cache, and neither fetched nor read for that.
    pub fn cache_hits(&self) -> u64 {
        self.sent.saturating_sub(self.fetches + self.loads)
    }
}

/// The state of a coordinator. Time is the duration since any fixed moment, which does not go back.
pub struct Coordinator {
    pub(super) geometry: Geometry,
    pub(super) settings: Settings,
    pub(super) members: BTreeMap<PeerId, Member>,
    /// Those that have said that they are there.
    pub(super) present: Vec<PeerId>,
    /// Those that have all chunks.
    pub(super) complete: BTreeSet<PeerId>,
    /// Those that wait for a chunk.
    pub(super) waiting: BTreeSet<PeerId>,
    /// Of these, those for which more is obtained.
    pub(super) hungry: BTreeSet<PeerId>,
    /// Of these, those that can be sent nothing.
    pub(super) starving: BTreeSet<PeerId>,
    pub(super) owners: Owners,
    pub(super) cache: Cache,
    pub(super) requests: Requests,
    /// Chunks on their way into the cache.
    pub(super) pending: BTreeMap<u32, Pending>,
    /// Chunks that were read from the source.
    pub(super) read: Bitmap,
    /// Chunks that could not be.
    pub(super) unreadable: Bitmap,
    /// Chunks that have left at least once.
    pub(super) left: Bitmap,
    /// Where the scan is: chunks from here on are obtained next.
    pub(super) position: u32,
    /// How many chunks were obtained, and when the last one was asked for.
    pub(super) obtained: u64,
    pub(super) obtained_at: Duration,
    /// The next chunk that providers are chosen for, once distribution has started.
    pub(super) placed: Option<u32>,
    /// All chunks before it were read from the source, or need not be.
    pub(super) first_unread: u32,
    /// Whether peers were told where the scan is.
    pub(super) is_scanning: bool,
    /// The time of a fetch, as a moving average over all providers.
    pub(super) latency: Duration,
    pub(super) counters: Counters,
    pub(super) out: VecDeque<Output>,
    next: u32,
    expelled: BTreeSet<[u8; 32]>,
}

impl Coordinator {
    /// The coordinator of a content that the source has in full.
    pub fn new(geometry: Geometry, settings: Settings) -> Self {
        let chunks = geometry.chunks();
        Self {
            geometry,
            settings,
            members: BTreeMap::new(),
            present: Vec::new(),
            complete: BTreeSet::new(),
            waiting: BTreeSet::new(),
            hungry: BTreeSet::new(),
            starving: BTreeSet::new(),
            owners: Owners::new(chunks, settings.replicas),
            cache: Cache::new(settings.cache),
            requests: Requests::default(),
            pending: BTreeMap::new(),
            read: Bitmap::new(chunks),
            unreadable: Bitmap::new(chunks),
            left: Bitmap::new(chunks),
            position: 0,
            obtained: 0,
            obtained_at: Duration::ZERO,
            placed: None,
            first_unread: 0,
            is_scanning: false,
            latency: Duration::ZERO,
            counters: Counters::default(),
            out: VecDeque::new(),
            next: 1,
            expelled: BTreeSet::new(),
        }
    }

    /// The number of the next peer that joins.
    pub fn next_id(&self) -> PeerId {
        PeerId(self.next)
    }

    /// The peers that are there.
    pub fn members(&self) -> impl Iterator<Item = (PeerId, &Member)> {
        self.members.iter().map(|(peer, member)| (*peer, member))
    }

    /// The identities that were expelled for wrong bytes.
    pub fn expelled(&self) -> &BTreeSet<[u8; 32]> {
        &self.expelled
    }

    /// The chunks that could not be read from the source.
    pub fn unreadable(&self) -> &Bitmap {
        &self.unreadable
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input) {
        let had_started = self.placed.is_some();
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
        if !had_started && self.placed.is_some() {
            self.obtained_at = now;
        }
        self.start_late(now);
        self.advance(now);
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        let fetch = self.pending.values().filter_map(|pending| pending.until).min();
        [fetch, self.advance_at(), self.scan_at()].into_iter().flatten().min()
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

    /// Records what a peer waits for. Called after each change of it.
    pub(super) fn update_starving(&mut self, peer: PeerId) {
        let Some(member) = self.members.get(&peer) else { return };
        let sets = [
            (&mut self.waiting, !member.wanted.is_empty()),
            (&mut self.hungry, member.is_hungry()),
            (&mut self.starving, member.is_starving()),
        ];
        for (set, belongs) in sets {
            if belongs {
                set.insert(peer);
            } else {
                set.remove(&peer);
            }
        }
    }

    /// Disconnects a peer that broke the rules; without a proof of wrong bytes, it may come back.
    pub(super) fn disconnect(&mut self, peer: PeerId, now: Duration) {
        self.out.push_back(Output::Disconnect(peer));
        self.left(peer, now);
    }

    fn joined(&mut self, identity: [u8; 32]) {
        let peer = self.next_id();
        // The upper half of the numbers is reserved for the table of owners.
        self.next = (self.next + 1).min(1 << 31);
        if self.expelled.contains(&identity) || peer.0 >= 1 << 31 {
            return self.out.push_back(Output::Disconnect(peer));
        }
        self.members.insert(peer, Member { identity, ..Member::default() });
    }

    fn message(&mut self, from: PeerId, message: Message, now: Duration) {
        let Some(member) = self.members.get(&from) else { return };
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
        let Some(member) = self.members.get(&peer) else { return };
        self.expelled.insert(member.identity);
        self.disconnect(peer, now);
    }

    fn left(&mut self, peer: PeerId, now: Duration) {
        let Some(gone) = self.members.remove(&peer) else { return };
        self.present.retain(|other| *other != peer);
        self.complete.remove(&peer);
        self.waiting.remove(&peer);
        self.hungry.remove(&peer);
        self.starving.remove(&peer);
        for index in gone.wanted.into_keys() {
            self.requests.remove(index, peer);
            self.cache.give_up(index, now);
        }
        for (index, _) in gone.sending {
            self.cache.sent(index, now);
        }
        self.replace(peer);
        let fetching = self.pending.iter().filter(|(_, pending)| pending.from == peer);
        let fetching: Vec<u32> = fetching.map(|(index, _)| *index).collect();
        for index in fetching {
            self.fetch_again(index, now);
        }
        // Those that are left may wait for the one that has gone.
        let all = self.present.clone();
        all.into_iter().for_each(|peer| self.place(peer));
    }

    fn requested(&mut self, from: PeerId, requests: &[(u32, u8)], now: Duration) {
        let chunks = self.geometry.chunks();
        let levels = self.geometry.levels();
        let Some(member) = self.members.get(&from) else { return };
        let outstanding = member.wanted.len() + member.sending.len() + requests.len();
        let valid = requests.iter().all(|(index, deep)| *index < chunks && *deep <= levels);
        if outstanding > MAX_REQUESTS || !valid {
            return self.disconnect(from, now);
        }
        let mut lost = Vec::new();
        for (index, levels) in requests {
            if self.unreadable.contains(*index) && !self.has_copy(*index) {
                lost.push(*index);
                self.withdraw_promise(*index, from);
            } else {
                self.want(from, *index, *levels, now);
                // It does not have the chunk that is fetched from it: its request was late, and each would wait for the other.
                if self.pending.get(index).is_some_and(|pending| pending.from == from) {
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
