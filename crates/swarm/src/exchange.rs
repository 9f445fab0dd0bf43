//! What two neighbours do with each other: one offers chunks, the other accepts those that it
//! lacks.
//!
//! An offer costs a round trip, but no chunk is sent twice, and the sender decides by the state of
//! its uplink: it makes the next offer while chunks accepted before are still leaving.

mod arrivals;
mod choosing;
mod copies;
mod fresh;
mod given;
mod giving;
mod news;
mod sending;
mod slots;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::message::{MAX_RUNS, Message};
use crate::random::Random;
use crate::{Geometry, Output, PeerId};

use arrivals::Arrivals;
use copies::Copies;
use fresh::Fresh;
pub(crate) use given::Given;
use news::News;
use sending::Sending;
use slots::Slots;

/// The most chunks that are expected from a neighbour that has sent none.
const FROM_ONE: u32 = 8;

/// Another party with which chunks are exchanged.
struct Neighbour {
    /// What it has, or is about to have.
    have: Bitmap,
    /// Chunks offered to it, or on their way to it.
    sending: Vec<Sending>,
    /// It has not answered an offer: it gets no other until it sends something.
    silent: bool,
    /// How many chunks are expected from it.
    expected: u32,
    /// The most that are: what it sends in time raises it.
    trust: u32,
    /// It has offered more while too many chunks were expected from it, and was refused.
    postponed: bool,
    /// What its trust in this party must be by now: more offers would be refused.
    trusts: u32,
    /// The time in which it answers an offer, without what late answers add.
    answer: Duration,
}

/// The chunks of one party, and those of its neighbours. Time is the duration since any fixed
/// moment.
pub(crate) struct Exchange {
    geometry: Geometry,
    have: Bitmap,
    neighbours: BTreeMap<PeerId, Neighbour>,
    copies: Copies,
    /// Chunks that no neighbour had when they came.
    fresh: Fresh,
    arrivals: Arrivals,
    news: News,
    /// Before this, no accepted chunk is late, and no offer is withdrawn. It may be earlier than
    /// the first of these.
    deadline: Option<Duration>,
    slots: Slots,
    /// Chunks that were accepted and do not leave yet: the receiver, the chunk, and how many levels
    /// it lacks.
    accepted: VecDeque<(PeerId, u32, u8)>,
    /// Only at the coordinator: chunks are given out once.
    given: Option<Given>,
    random: Random,
    pub(crate) out: VecDeque<Output>,
}

impl Exchange {
    pub(crate) fn new(geometry: Geometry, have: Bitmap, random: Random) -> Self {
        let chunks = have.length();
        Self {
            geometry,
            copies: Copies::new(chunks),
            have,
            neighbours: BTreeMap::new(),
            fresh: Fresh::new(chunks),
            arrivals: Arrivals::default(),
            news: News::new(chunks),
            deadline: None,
            slots: Slots::new(geometry),
            accepted: VecDeque::new(),
            given: None,
            random,
            out: VecDeque::new(),
        }
    }

    /// The exchange of a source, which has everything and gives each chunk out once if it can.
    pub(crate) fn of_source(geometry: Geometry, random: Random) -> Self {
        let mut all = Bitmap::new(geometry.chunks());
        for index in 0..geometry.chunks() {
            all.insert(index);
        }
        let given = Some(Given::new());
        Self { given, ..Self::new(geometry, all, random) }
    }

    /// Gives no chunk to any neighbour.
    pub(crate) fn give_nothing(&mut self) {
        self.slots.close();
    }

    pub(crate) fn have(&self) -> &Bitmap {
        &self.have
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.neighbours.keys().copied()
    }

    /// How many neighbours have chunk `index`.
    pub(crate) fn copies(&self, index: u32) -> u16 {
        self.copies.present(index)
    }

    /// A neighbour can be reached now. It is told what is here.
    pub(crate) fn link(&mut self, peer: PeerId, now: Duration) {
        let have = Bitmap::new(self.have.length());
        let neighbour = Neighbour {
            have,
            sending: Vec::new(),
            silent: false,
            expected: 0,
            trust: FROM_ONE,
            postponed: false,
            trusts: FROM_ONE,
            answer: Duration::ZERO,
        };
        if self.neighbours.contains_key(&peer) {
            return;
        }
        if self.neighbours.is_empty() && self.given.is_some() {
            // The earlier neighbours may have been slower, or faster.
            self.slots = Slots::new(self.geometry);
        }
        self.neighbours.insert(peer, neighbour);
        if peer == PeerId::COORDINATOR {
            // Its source has all chunks.
            (0..self.have.length()).for_each(|index| self.learn(peer, index));
        }
        if self.given.is_none() {
            let mut all = self.have.clone();
            for index in self.arrivals.indices() {
                all.insert(index);
            }
            let runs: Vec<Range<u32>> = all.runs().collect();
            self.send_runs(peer, &runs, Message::Have);
        }
        self.fill(now);
    }

    /// A neighbour is gone. What was expected from it is wanted again.
    pub(crate) fn unlink(&mut self, peer: PeerId, now: Duration) {
        let Some(gone) = self.neighbours.remove(&peer) else { return };
        gone.sending.iter().for_each(|sending| self.release(sending));
        for index in gone.have.runs().flatten() {
            self.copies.remove(index);
        }
        if let Some(given) = &mut self.given {
            given.forget(peer, &gone.have, &self.copies);
        }
        let lost = self.arrivals.remove_all(peer);
        self.want(&lost);
        self.fill(now);
    }

    /// Whether a neighbour has all chunks, and none is on its way to it.
    pub(crate) fn needs_nothing(&self, peer: PeerId) -> bool {
        let neighbour = self.neighbours.get(&peer);
        neighbour.is_some_and(|one| one.have.is_full() && one.sending.is_empty())
    }

    /// Handles a message of a neighbour that concerns chunks; others are ignored.
    pub(crate) fn handle(&mut self, from: PeerId, message: &Message, now: Duration) {
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return };
        let was_silent = std::mem::take(&mut neighbour.silent);
        // Nothing else makes an offer possible; the source waits for reports, too.
        let is_more = matches!(message, Message::Want(_) | Message::Decline(_));
        match message {
            Message::Have(runs) => {
                for index in within(runs, neighbour.have.length()) {
                    if neighbour.have.insert(index) {
                        self.copies.add(index);
                    }
                    if let Some(given) = &mut self.given {
                        given.reported(from, index);
                    }
                }
            }
            Message::Want(runs) => {
                within(runs, self.have.length()).for_each(|index| self.unlearn(from, index));
            }
            Message::Offer(index) => self.offered(from, *index, now),
            Message::Accept(index, levels) => self.accepted(from, *index, *levels, now),
            Message::Decline(index) => self.declined(from, *index),
            _ => return,
        }
        if is_more || was_silent || self.given.is_some() {
            self.fill(now);
        }
    }

    /// Something is due at `time`.
    fn due_at(&mut self, time: Duration) {
        self.deadline = Some(self.deadline.map_or(time, |deadline| deadline.min(time)));
    }

    pub(crate) fn send(&mut self, to: PeerId, message: Message) {
        self.out.push_back(Output::Send(to, message));
    }

    pub(crate) fn send_runs(
        &mut self,
        to: PeerId,
        runs: &[Range<u32>],
        message: fn(Vec<Range<u32>>) -> Message,
    ) {
        for part in runs.chunks(MAX_RUNS) {
            self.send(to, message(part.to_vec()));
        }
    }

    /// A neighbour has a chunk.
    fn learn(&mut self, peer: PeerId, index: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        if neighbour.have.insert(index) {
            self.copies.add(index);
        }
        if let Some(given) = &mut self.given {
            given.reported(peer, index);
        }
    }

    /// A neighbour lacks a chunk that it seemed to have.
    fn unlearn(&mut self, peer: PeerId, index: u32) {
        let Some(neighbour) = self.neighbours.get_mut(&peer) else { return };
        // It may have come before this party knows that it has left.
        let sending = neighbour.sending.iter_mut().find(|one| one.index == index);
        if let Some(sending) = sending {
            sending.is_wanted = true;
        }
        if neighbour.have.remove(index) {
            self.copies.remove(index);
            if let Some(given) = &mut self.given {
                given.wanted(index, self.copies.present(index));
            } else if self.have.contains(index) {
                self.fresh.push(index);
            }
        }
    }
}

/// The chunks of `runs` that the content has.
fn within(runs: &[Range<u32>], chunks: u32) -> impl Iterator<Item = u32> + use<'_> {
    runs.iter().flat_map(move |run| run.start..run.end.min(chunks))
}
