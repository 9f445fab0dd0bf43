//! A peer in mediated mode: it requests what it lacks from the coordinator, and returns chunks to
//! it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::bitmap::Bitmap;
use crate::message::{MAX_REQUESTS, MAX_RUNS, Message, runs_of};
use crate::peer::{Input, MOST_WRONG};
use crate::random::Random;
use crate::{Geometry, Output, PeerId};

/// So many requests, or chunks that have come, are told together.
const BATCH: usize = 8;
/// The most chunks that are leaving for the coordinator at a time.
const MOST_LEAVING: u32 = 64;

/// The state of a peer. It needs no time: the coordinator answers every request, or the link ends.
pub struct Peer {
    geometry: Geometry,
    have: Bitmap,
    /// Chunks that the coordinator has named for this peer to provide.
    assigned: Bitmap,
    /// Where the next request is, once the coordinator has told where its scan is. Before, only
    /// assigned chunks are requested.
    cursor: Option<u32>,
    requested: BTreeSet<u32>,
    /// Of these, those that the coordinator fetches: they are on their way.
    awaited: BTreeSet<u32>,
    lost: Bitmap,
    /// Chunks that the coordinator has not been told of.
    news: Vec<u32>,
    /// Whether one of these is to be provided here: it is told at once, because the coordinator
    /// keeps it until then.
    has_provided: bool,
    leaving: u32,
    wrong: u32,
    /// Requests in random order, in the simulator.
    random: Option<Random>,
    out: VecDeque<Output>,
}

impl Peer {
    /// A peer that has the chunks `have` of a content.
    pub fn new(geometry: Geometry, have: Bitmap) -> Self {
        let empty = || Bitmap::new(geometry.chunks());
        let assigned = empty();
        let lost = empty();
        let runs: Vec<Range<u32>> = have.runs().collect();
        let mut peer = Self {
            geometry,
            have,
            assigned,
            cursor: None,
            requested: BTreeSet::new(),
            awaited: BTreeSet::new(),
            lost,
            news: Vec::new(),
            has_provided: false,
            leaving: 0,
            wrong: 0,
            random: None,
            out: VecDeque::new(),
        };
        if runs.is_empty() {
            // The first message says that the peer is there.
            peer.send(Message::Have(runs));
        } else {
            peer.send_runs(&runs, Message::Have);
        }
        peer
    }

    /// Requests chunks in random order rather than from the position of the scan: the comparison of
    /// the paper "Trickle: A PSP File Sharing Protocol" (section "Randomized Client Request
    /// Sequence Benchmark"). Only the simulator has it.
    pub(crate) fn request_at_random(&mut self, seed: u64) {
        self.random = Some(Random::new(seed));
    }

    /// The chunks that are there.
    pub fn have(&self) -> &Bitmap {
        &self.have
    }

    /// Whether all chunks are there.
    pub fn is_complete(&self) -> bool {
        self.have.is_full()
    }

    /// The chunks that are missing, if the coordinator says that all of them are lost.
    pub fn lost(&self) -> Option<Vec<Range<u32>>> {
        let any = self.lost.count() > 0 && !self.is_complete();
        let all_lost = any && self.have.gaps().flatten().all(|index| self.lost.contains(index));
        all_lost.then(|| self.have.gaps().collect())
    }

    /// Handles what happened. Messages and chunks of parties other than the coordinator are
    /// ignored.
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Message(PeerId::COORDINATOR, message) => self.message(message),
            Input::Chunk { from: PeerId::COORDINATOR, index, good } => self.chunk(index, good),
            Input::Sent { .. } => self.leaving = self.leaving.saturating_sub(1),
            _ => {}
        }
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Provide(runs) => self.provide(&runs),
            Message::Scan(position, dropped) => {
                for index in self.within(&dropped) {
                    self.give_up(index);
                }
                self.cursor = Some(position.min(self.have.length()));
            }
            Message::Fetch(index) => self.fetch(index),
            Message::Lost(runs) => {
                for index in self.within(&runs) {
                    self.lost.insert(index);
                    self.assigned.remove(index);
                    self.give_up(index);
                }
            }
            Message::Have(runs) => {
                for index in self.within(&runs) {
                    self.lost.remove(index);
                }
            }
            _ => return,
        }
        self.request();
    }

    /// The chunks of `runs` that the content has.
    fn within(&self, runs: &[Range<u32>]) -> Vec<u32> {
        let chunks = self.have.length();
        runs.iter().flat_map(|run| run.start..run.end.min(chunks)).collect()
    }

    fn provide(&mut self, runs: &[Range<u32>]) {
        let (there, missing): (Vec<u32>, Vec<u32>) =
            self.within(runs).into_iter().partition(|index| self.have.contains(*index));
        for index in missing {
            self.assigned.insert(index);
        }
        self.send_runs(&runs_of(&there), Message::Provide);
    }

    /// A request will not be answered.
    fn give_up(&mut self, index: u32) {
        self.requested.remove(&index);
        if self.awaited.remove(&index) {
            self.send(Message::Decline(index));
        }
    }

    fn fetch(&mut self, index: u32) {
        if self.requested.contains(&index) {
            self.awaited.insert(index);
            return;
        }
        if !self.have.contains(index) || self.leaving >= MOST_LEAVING {
            return self.send(Message::Decline(index));
        }
        self.leaving += 1;
        // The coordinator has the whole hash tree.
        self.out.push_back(Output::SendChunk { to: PeerId::COORDINATOR, index, levels: 0 });
    }

    fn chunk(&mut self, index: u32, good: bool) {
        self.requested.remove(&index);
        let is_awaited = self.awaited.remove(&index);
        if good {
            self.has_provided |= self.assigned.remove(index);
            self.lost.remove(index);
            if self.have.insert(index) {
                self.news.push(index);
            }
        }
        if is_awaited {
            self.fetch(index);
        }
        if !good {
            self.wrong += 1;
            if self.wrong >= MOST_WRONG {
                return self.out.push_back(Output::Disconnect(PeerId::COORDINATOR));
            }
        }
        self.request();
    }

    /// Tells what has come, and requests as much as is allowed.
    fn request(&mut self) {
        let mut requests = Vec::new();
        if self.cursor.is_none() || self.requested.len() + BATCH <= MAX_REQUESTS {
            while self.requested.len() < MAX_REQUESTS {
                let Some(index) = self.next() else { break };
                self.requested.insert(index);
                requests.push((index, self.have.missing_levels(index, self.geometry.levels())));
            }
        }
        // Providers tell each chunk at once: the coordinator may fetch it.
        let has_provided = std::mem::take(&mut self.has_provided);
        let at_once = self.requested.is_empty() || self.cursor.is_none() || has_provided;
        if self.news.len() >= BATCH || (at_once && !self.news.is_empty()) {
            self.news.sort_unstable();
            let runs = runs_of(&std::mem::take(&mut self.news));
            self.send_runs(&runs, Message::Have);
        }
        if !requests.is_empty() {
            self.send(Message::Request(requests));
        }
    }

    /// The next chunk to request: first those that this peer is to provide, and for at most half of
    /// the requests once there is a scan.
    fn next(&mut self) -> Option<u32> {
        let is_assigned = |index: &&u32| self.assigned.contains(**index);
        let most = if self.cursor.is_some() { MAX_REQUESTS / 2 } else { MAX_REQUESTS };
        if self.assigned.count() > 0 && self.requested.iter().filter(is_assigned).count() < most {
            let next = self.next_assigned();
            if next.is_some() {
                return next;
            }
        }
        let mut cursor = self.cursor?;
        if let Some(random) = &mut self.random {
            cursor = random.below(self.have.length());
        }
        let end = self.have.length();
        let found = self.next_missing(cursor..end).or_else(|| self.next_missing(0..cursor))?;
        self.cursor = Some(found + 1);
        Some(found)
    }

    fn next_assigned(&self) -> Option<u32> {
        let mut at = 0;
        loop {
            let index = self.assigned.next_present(at)?;
            if !self.requested.contains(&index) {
                return Some(index);
            }
            at = index + 1;
        }
    }

    /// The first chunk of a range that is missing, not lost, and not requested.
    fn next_missing(&self, range: Range<u32>) -> Option<u32> {
        let mut at = range.start;
        loop {
            let index = self.have.next_missing(at).filter(|index| *index < range.end)?;
            if !self.requested.contains(&index) && !self.lost.contains(index) {
                return Some(index);
            }
            at = index + 1;
        }
    }

    fn send(&mut self, message: Message) {
        self.out.push_back(Output::Send(PeerId::COORDINATOR, message));
    }

    fn send_runs(&mut self, runs: &[Range<u32>], message: fn(Vec<Range<u32>>) -> Message) {
        for part in runs.chunks(MAX_RUNS) {
            self.send(message(part.to_vec()));
        }
    }
}
