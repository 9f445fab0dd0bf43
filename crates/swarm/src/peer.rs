//! A peer: it receives a content, and passes on what it has.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::exchange::Exchange;
use crate::message::Message;
use crate::random::Random;
use crate::{Geometry, Output, PeerId};

/// The most neighbours that a coordinator may name.
const MOST_NEIGHBOURS: usize = 256;

/// After so many wrong chunks from the coordinator, which verifies all of them, the link is given
/// up.
pub(crate) const MOST_WRONG: u32 = 16;

/// What happens to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A control message. The connection has proved the sender.
    Message(PeerId, Message),
    /// The connection to a neighbour that [`Output::Connect`] or [`Output::Allow`] named is there.
    /// The one to the coordinator is the first.
    Linked(PeerId),
    /// It is gone, or could not be made.
    Unlinked(PeerId),
    /// It is gone, and another one to the same neighbour is there.
    Relinked(PeerId),
    /// A chunk has come. `good`: it was verified and stored.
    Chunk {
        /// The sender.
        from: PeerId,
        /// The chunk.
        index: u32,
        /// Whether it belongs to the content.
        good: bool,
    },
    /// A chunk of [`Output::SendChunk`] has left, or could not be read.
    Sent {
        /// The receiver.
        to: PeerId,
        /// The chunk.
        index: u32,
    },
}

/// The state of a peer. Time is the duration since any fixed moment, which does not go back.
pub struct Peer {
    exchange: Exchange,
    /// Neighbours that the coordinator has named, connected or not.
    named: BTreeSet<PeerId>,
    /// Peers that have sent wrong bytes.
    refused: BTreeSet<PeerId>,
    lost: Bitmap,
    /// Wrong chunks from the coordinator.
    wrong: u32,
}

impl Peer {
    /// A peer that has the chunks `have` of a content, and listens at `addresses`.
    pub fn new(geometry: Geometry, have: Bitmap, addresses: Vec<String>, seed: u64) -> Self {
        let lost = Bitmap::new(geometry.chunks());
        let mut exchange = Exchange::new(geometry, have, Random::new(seed));
        exchange.send(PeerId::COORDINATOR, Message::Listening(addresses));
        Self { exchange, named: BTreeSet::new(), refused: BTreeSet::new(), lost, wrong: 0 }
    }

    /// Receives only, and offers no chunk to others.
    pub fn receive_only(&mut self) {
        self.exchange.give_nothing();
    }

    /// The chunks that are there.
    pub fn have(&self) -> &Bitmap {
        self.exchange.have()
    }

    /// Whether all chunks are there.
    pub fn is_complete(&self) -> bool {
        self.have().is_full()
    }

    /// The chunks that are missing, if the coordinator says that all of them are lost; None while
    /// another party may have one.
    pub fn lost(&self) -> Option<Vec<Range<u32>>> {
        // The coordinator counts as one copy.
        let is_lost = |index| self.lost.contains(index) && self.exchange.copies(index) <= 1;
        let any = self.lost.count() > 0 && !self.is_complete();
        let all_lost = any && self.have().gaps().flatten().all(is_lost);
        all_lost.then(|| self.have().gaps().collect())
    }

    /// The neighbours with a connection, without the coordinator.
    pub fn neighbours(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.exchange.neighbours().filter(|peer| *peer != PeerId::COORDINATOR)
    }

    /// Handles what happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input) {
        match input {
            Input::Message(PeerId::COORDINATOR, message) => self.coordinated(message, now),
            Input::Message(from, message) => self.exchange.handle(from, &message, now),
            Input::Linked(peer) if self.may_link(peer) => self.exchange.link(peer, now),
            Input::Linked(peer) => self.exchange.out.push_back(Output::Disconnect(peer)),
            Input::Unlinked(peer) => self.unlinked(peer, now),
            Input::Relinked(peer) => {
                self.exchange.unlink(peer, now);
                self.handle(now, Input::Linked(peer));
            }
            Input::Chunk { from, index, good: true } => self.exchange.received(from, index, now),
            Input::Chunk { from, index, good: false } => self.poisoned(from, index, now),
            Input::Sent { to, index } => self.exchange.sent(to, index, now),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.exchange.next_timeout()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.exchange.handle_timeout(now);
    }

    /// What the driver does next.
    pub fn poll(&mut self) -> Option<Output> {
        self.exchange.out.pop_front()
    }

    fn may_link(&self, peer: PeerId) -> bool {
        peer == PeerId::COORDINATOR || self.named.contains(&peer)
    }

    fn coordinated(&mut self, message: Message, now: Duration) {
        match message {
            Message::Meet { peer, identity, addresses, dial } => {
                let refused = self.refused.contains(&peer) || peer == PeerId::COORDINATOR;
                if refused || self.named.len() >= MOST_NEIGHBOURS || !self.named.insert(peer) {
                    return;
                }
                self.exchange.out.push_back(match dial {
                    true => Output::Connect { peer, identity, addresses },
                    false => Output::Allow { peer, identity, addresses },
                });
            }
            Message::Part(peer) => {
                if self.named.remove(&peer) {
                    self.exchange.unlink(peer, now);
                    self.exchange.out.push_back(Output::Disconnect(peer));
                }
            }
            Message::Lost(runs) => {
                let chunks = self.lost.length();
                for index in runs.into_iter().flatten().take_while(|index| *index < chunks) {
                    self.lost.insert(index);
                    // What the source was about to send does not come.
                    self.exchange.failed_from(PeerId::COORDINATOR, index);
                }
            }
            other => self.exchange.handle(PeerId::COORDINATOR, &other, now),
        }
    }

    fn unlinked(&mut self, peer: PeerId, now: Duration) {
        self.exchange.unlink(peer, now);
        if self.named.remove(&peer) {
            self.exchange.send(PeerId::COORDINATOR, Message::Unreachable(peer));
        }
    }

    /// Ends the connection to a peer for good, and reports it.
    fn poisoned(&mut self, from: PeerId, index: u32, now: Duration) {
        self.exchange.failed(index);
        if from == PeerId::COORDINATOR {
            self.wrong += 1;
            if self.wrong >= MOST_WRONG {
                self.exchange.out.push_back(Output::Disconnect(from));
            }
            return;
        }
        self.refused.insert(from);
        self.named.remove(&from);
        self.exchange.unlink(from, now);
        self.exchange.out.push_back(Output::Disconnect(from));
        self.exchange.send(PeerId::COORDINATOR, Message::Accuse(from, index));
    }
}
