//! The coordinator of a share in direct mode: it gives each chunk out once, and says who exchanges
//! chunks with whom.

mod members;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::exchange::Exchange;
use crate::message::{Message, runs_of};
use crate::random::Random;
use crate::{Geometry, Output, PeerId};
pub use members::Member;
use members::Members;

/// The most peers that the source exchanges chunks with itself.
const SOURCE_NEIGHBOURS: usize = 32;
/// So many different identities must accuse another until it is expelled, since one accuser may
/// lie.
const ACCUSERS: usize = 2;
/// Peers that have reported nothing for so long do not get what the source can no longer read.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// What happens to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A peer with this identity has connected; [`Coordinator::handle`] numbers it by
    /// [`Coordinator::next_id`].
    Joined([u8; 32]),
    /// A control message. The connection has proved the sender.
    Message(PeerId, Message),
    /// The connection of a peer is gone.
    Left(PeerId),
    /// A chunk of [`Output::SendChunk`] has left.
    Sent {
        /// The receiver.
        to: PeerId,
        /// The chunk.
        index: u32,
    },
    /// A chunk of [`Output::SendChunk`] cannot be read any more: in direct mode from the source, in
    /// mediated mode because it was evicted.
    Unreadable {
        /// The receiver.
        to: PeerId,
        /// The chunk.
        index: u32,
    },
    /// Only in mediated mode: a chunk has come from a provider. `good`: it was verified.
    Chunk {
        /// The sender.
        from: PeerId,
        /// The chunk.
        index: u32,
        /// Whether it belongs to the content.
        good: bool,
    },
    /// Only in mediated mode: the chunk of [`Output::Load`] is in the cache, or could not be read
    /// (`good` is false).
    Loaded {
        /// The chunk.
        index: u32,
        /// Whether it is there.
        good: bool,
    },
}

/// The state of a coordinator. Time is the duration since any fixed moment, which does not go back.
pub struct Coordinator {
    exchange: Exchange,
    members: Members,
    unreadable: Bitmap,
    /// When a peer has last come, gone, or reported a chunk, until all are told what is unreadable.
    progressed: Option<Duration>,
}

impl Coordinator {
    /// The coordinator of a content that the source has in full.
    pub fn new(geometry: Geometry, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let members = Members::new(Random::new(random.next()));
        let unreadable = Bitmap::new(geometry.chunks());
        let exchange = Exchange::of_source(geometry, random);
        Self { exchange, members, unreadable, progressed: None }
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
        &self.unreadable
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input) {
        match input {
            Input::Joined(identity) => {
                let peer = self.members.join(identity);
                if self.members.is_expelled(&identity) {
                    self.exchange.out.push_back(Output::Disconnect(peer));
                }
            }
            Input::Message(from, message) => self.message(from, message, now),
            Input::Left(peer) => self.left(peer, now),
            Input::Sent { to, index } => self.exchange.sent(to, index, now),
            Input::Unreadable { to, index } => {
                self.progressed = Some(now);
                self.unreadable.insert(index);
                self.tell_lost(index, to);
                self.exchange.unreadable(to, index, now);
            }
            // No peer sends chunks to the source in direct mode.
            Input::Chunk { .. } | Input::Loaded { .. } => {}
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.exchange.next_timeout().into_iter().chain(self.give_up_at()).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.exchange.handle_timeout(now);
        if self.give_up_at().is_some_and(|at| at <= now) {
            self.progressed = None;
            self.tell_unreadable();
        }
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        self.exchange.out.pop_front()
    }

    fn message(&mut self, from: PeerId, message: Message, now: Duration) {
        if self.members.get(from).is_none() {
            return;
        }
        match message {
            Message::Listening(addresses) => self.listening(from, addresses, now),
            Message::Unreachable(other) => {
                let introductions = self.members.reverse(from, other);
                self.introduce(introductions);
                self.serve_isolated(now);
            }
            Message::Accuse(other, _) => self.accused(other, from, now),
            Message::Have(runs) => {
                self.progressed = Some(now);
                self.members
                    .count(from, runs.iter().map(|run| u64::from(run.end - run.start)).sum());
                self.exchange.handle(from, &Message::Have(runs), now);
                self.serve_isolated(now);
            }
            Message::Want(runs) => {
                let missing: u64 = runs.iter().map(|run| u64::from(run.end - run.start)).sum();
                let all = u64::from(self.exchange.have().length());
                self.members.limit(from, all.saturating_sub(missing));
                self.exchange.handle(from, &Message::Want(runs), now);
                self.serve_isolated(now);
            }
            other => self.exchange.handle(from, &other, now),
        }
    }

    fn listening(&mut self, peer: PeerId, addresses: Vec<String>, now: Duration) {
        self.progressed = Some(now);
        let introductions = self.members.listen(peer, addresses);
        self.introduce(introductions);
        if self.exchange.neighbours().count() < SOURCE_NEIGHBOURS {
            self.exchange.link(peer, now);
        }
        let is_lost = |index: &u32| self.exchange.copies(*index) == 0;
        let unreadable: Vec<u32> = self.unreadable.runs().flatten().filter(is_lost).collect();
        if !unreadable.is_empty() {
            self.exchange.send_runs(peer, &runs_of(&unreadable), Message::Lost);
        }
    }

    fn introduce(&mut self, introductions: Vec<(PeerId, Message)>) {
        introductions.into_iter().for_each(|(to, message)| self.exchange.send(to, message));
    }

    fn left(&mut self, peer: PeerId, now: Duration) {
        self.progressed = Some(now);
        self.exchange.unlink(peer, now);
        let introductions = self.members.leave(peer);
        self.introduce(introductions);
        // Another peer takes its place beside the source.
        let linked: BTreeSet<PeerId> = self.exchange.neighbours().collect();
        if linked.len() < SOURCE_NEIGHBOURS {
            let other = self.members.listening().find(|id| !linked.contains(id));
            other.into_iter().for_each(|other| self.exchange.link(other, now));
        }
        self.serve_isolated(now);
    }

    /// A peer that has all chunks gives its place beside the source to one that others may not
    /// reach.
    fn serve_isolated(&mut self, now: Duration) {
        let linked: BTreeSet<PeerId> = match self.members.isolated().next() {
            Some(_) => self.exchange.neighbours().collect(),
            None => return,
        };
        let all = u64::from(self.exchange.have().length());
        let lacks = |peer: &PeerId| self.members.get(*peer).is_some_and(|one| one.chunks < all);
        let waiting = self.members.isolated().filter(|peer| !linked.contains(peer) && lacks(peer));
        let done = linked.iter().copied().filter(|peer| self.exchange.needs_nothing(*peer));
        let count = SOURCE_NEIGHBOURS.saturating_sub(linked.len());
        let free = std::iter::repeat_n(None, count).chain(done.map(Some));
        let changes: Vec<_> = free.zip(waiting).collect();
        for (done, waiting) in changes {
            done.into_iter().for_each(|done| self.exchange.unlink(done, now));
            self.exchange.link(waiting, now);
        }
    }

    fn accused(&mut self, peer: PeerId, accuser: PeerId, now: Duration) {
        if self.members.accuse(peer, accuser) < ACCUSERS {
            return;
        }
        for peer in self.members.expel(peer) {
            self.exchange.out.push_back(Output::Disconnect(peer));
            self.left(peer, now);
        }
    }

    /// The source no longer has a chunk. If no other peer has it, all are told; otherwise only the
    /// one that waits for it.
    fn tell_lost(&mut self, index: u32, waiting: PeerId) {
        let runs = runs_of(&[index]);
        let is_elsewhere = self.exchange.copies(index) > 1;
        let all = self.members.iter().map(|(peer, _)| peer);
        let told: Vec<PeerId> = all.filter(|peer| !is_elsewhere || *peer == waiting).collect();
        for peer in told {
            self.exchange.send(peer, Message::Lost(runs.clone()));
        }
    }

    /// When all peers are told what the source can no longer read: those that have a chunk of it
    /// may have left, or cannot be reached.
    fn give_up_at(&self) -> Option<Duration> {
        let progressed = self.progressed.filter(|_| self.unreadable.count() > 0)?;
        Some(progressed + PROGRESS_TIMEOUT)
    }

    /// A peer takes a chunk for lost only if none of its neighbours has it.
    fn tell_unreadable(&mut self) {
        let runs: Vec<_> = self.unreadable.runs().collect();
        let all: Vec<PeerId> = self.members.iter().map(|(peer, _)| peer).collect();
        all.into_iter().for_each(|peer| self.exchange.send_runs(peer, &runs, Message::Lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkSize;

    /// One identity may have several connections, and leave and come back: it is one accuser.
    #[test]
    fn accusers_are_identities() {
        let geometry = Geometry::new(1 << 20, ChunkSize::new(64 << 10).unwrap()).unwrap();
        let mut coordinator = Coordinator::new(geometry, 1);
        let join = |coordinator: &mut Coordinator, identity: u8| {
            let peer = coordinator.next_id();
            coordinator.handle(Duration::ZERO, Input::Joined([identity; 32]));
            let listening = Message::Listening(vec!["192.0.2.1:1".to_owned()]);
            coordinator.handle(Duration::ZERO, Input::Message(peer, listening));
            peer
        };
        let accuse = |coordinator: &mut Coordinator, by: PeerId, peer: PeerId| {
            coordinator.handle(Duration::ZERO, Input::Message(by, Message::Accuse(peer, 0)));
            coordinator.expelled().len()
        };
        let victims = [join(&mut coordinator, 1), join(&mut coordinator, 1)];
        let liars = [(); 4].map(|()| join(&mut coordinator, 2));
        for liar in liars {
            assert_eq!(accuse(&mut coordinator, liar, victims[0]), 0);
        }
        coordinator.handle(Duration::ZERO, Input::Left(liars[0]));
        let again = join(&mut coordinator, 2);
        assert_eq!(accuse(&mut coordinator, again, victims[1]), 0);
        // Another identity, at another connection of the same peer.
        let other = join(&mut coordinator, 3);
        assert_eq!(accuse(&mut coordinator, other, victims[1]), 1);
        let left: Vec<PeerId> = coordinator.members().map(|(peer, _)| peer).collect();
        assert!(victims.iter().all(|victim| !left.contains(victim)), "{left:?}");
    }

    /// Over fast links the answer of a receiver may be here before the news that the chunk has
    /// left.
    #[test]
    fn a_chunk_that_was_wrong_is_offered_again_whatever_is_known_first() {
        let geometry = Geometry::new(1000, ChunkSize::new(1024).unwrap()).unwrap();
        for wanted_first in [false, true] {
            let mut coordinator = Coordinator::new(geometry, 1);
            let peer = coordinator.next_id();
            coordinator.handle(Duration::ZERO, Input::Joined([1; 32]));
            let mut say = |message, now| coordinator.handle(now, Input::Message(peer, message));
            say(Message::Listening(Vec::new()), Duration::ZERO);
            say(Message::Accept(0, 0), Duration::ZERO);
            let want = Input::Message(peer, Message::Want(runs_of(&[0])));
            let mut events = [Input::Sent { to: peer, index: 0 }, want];
            if wanted_first {
                events.reverse();
            }
            events.into_iter().for_each(|event| coordinator.handle(Duration::ZERO, event));
            let mut now = Duration::ZERO;
            for _ in 0..3 {
                now = coordinator.next_timeout().unwrap_or(now).max(now);
                coordinator.handle_timeout(now);
            }
            let offers = std::iter::from_fn(|| coordinator.poll())
                .filter(|output| *output == Output::Send(peer, Message::Offer(0)));
            assert_eq!(offers.count(), 2, "{wanted_first}");
        }
    }
}
