//! Messages and chunks that the parties of a running simulation send to each other.

use std::time::Duration;

use super::event::{Carried, Event};
use super::{RoundTrip, Simulator, loss};
use crate::message::Message;
use crate::mode::Mode;
use crate::{PeerId, coordinator, peer};

impl Simulator<'_> {
    pub(super) fn send(&mut self, from: PeerId, to: PeerId, message: Message) {
        debug_assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
        if let Some(number) = self.nodes.number(from).filter(|_| self.scenario.trace) {
            let requests = message.requests().map(|index| (index, self.now));
            self.nodes.all[number].requested.extend(requests);
        }
        let Some(link) = self.network.link_of(from, to) else { return };
        if self.scenario.loss > 0.0 {
            let at = self.streams.message(self.scenario, self.now, (from, to), &message);
            return self.agenda.add(at, Event::Deliver { from, to, link, message });
        }
        let event = Event::Deliver { from, to, link, message };
        match self.arrival(from, to, self.now, false) {
            Some(arrives) => self.agenda.add(arrives, event),
            None => self.agenda.add_message(self.now + self.scenario.delay, event),
        }
    }

    /// A message arrives, if its connection has not ended.
    pub(super) fn deliver(&mut self, from: PeerId, to: PeerId, link: u32, message: Message) {
        if self.network.link_of(from, to) != Some(link) {
            return;
        }
        self.outcome.messages += 1;
        if from == PeerId::COORDINATOR || to == PeerId::COORDINATOR {
            self.outcome.coordinator_messages += 1;
            self.outcome.coordinator_bytes += message.encode().len() as u64;
        }
        self.outcome.chunks.declined += u64::from(matches!(message, Message::Decline(_)));
        match to {
            PeerId::COORDINATOR => self.coordinate(coordinator::Input::Message(from, message)),
            to => self.input(to, peer::Input::Message(from, message)),
        }
    }

    pub(super) fn send_chunk(&mut self, from: PeerId, to: PeerId, index: u32) {
        let is_cached = self.scenario.mode != Mode::Direct || from != PeerId::COORDINATOR;
        if !is_cached && self.source_has_ended() {
            return self.after(Duration::ZERO, Event::Unreadable { to, index });
        }
        let is_mediating = is_cached && from == PeerId::COORDINATOR;
        debug_assert!(!is_mediating || self.coordinator.cache.contains_key(&index));
        let Some(link) = self.network.link_of(from, to) else {
            return self.after(Duration::ZERO, Event::Sent { from, to, index });
        };
        let bytes = self.bytes(index);
        let left = self.network.send(self.now, from, bytes);
        self.outcome.chunks.sent += 1;
        self.outcome.source_bytes += if from == PeerId::COORDINATOR { bytes } else { 0 };
        let number = self.nodes.number(from);
        let poison = number.map_or(0.0, |number| self.scenario.peers[number].poison);
        let good = poison == 0.0 || !self.random.chance(poison);
        self.agenda.add(left, Event::Sent { from, to, index });
        let carried = Box::new(Carried { from, to, link, index, good });
        let arrives = self.chunk_arrival(from, to, left, bytes);
        self.agenda.add(arrives, Event::Arriving(carried));
    }

    /// The moment at which a chunk arrives that leaves at `left`.
    fn chunk_arrival(&mut self, from: PeerId, to: PeerId, left: Duration, bytes: u64) -> Duration {
        let arrives = self.arrival(from, to, left, true).unwrap_or(left + self.scenario.delay);
        if self.scenario.loss <= 0.0 {
            return arrives;
        }
        let delivery = self.streams.chunk(self.scenario, arrives, (from, to), bytes);
        // Repetitions take their part of the uplink, too.
        let repeated = bytes.min(loss::PACKET) * u64::from(delivery.sent - 1);
        self.network.send(self.now, from, repeated);
        delivery.at
    }

    /// The last byte of a chunk reaches the downlink of its receiver.
    pub(super) fn receive(&mut self, carried: Box<Carried>) {
        let bytes = self.bytes(carried.index);
        let arrived = self.network.receive(self.now, carried.to, bytes);
        self.agenda.add(arrived, Event::Chunk(carried));
    }

    /// A chunk has passed the downlink of its receiver.
    pub(super) fn received(&mut self, carried: Carried) {
        let Carried { from, to, link, index, good } = carried;
        let is_linked = self.network.link_of(from, to) == Some(link);
        if is_linked && to == PeerId::COORDINATOR {
            self.coordinate(coordinator::Input::Chunk { from, index, good });
        } else if is_linked {
            self.outcome.chunks.duplicates += u64::from(self.nodes.has(to, index));
            self.record(to, index, good);
            self.input(to, peer::Input::Chunk { from, index, good });
        }
    }

    /// Records the time since a chunk was requested, when it arrives.
    fn record(&mut self, to: PeerId, index: u32, good: bool) {
        let peer = self.nodes.number(to).filter(|_| self.scenario.trace && good);
        let Some(peer) = peer else { return };
        if let Some(since) = self.nodes.all[peer].requested.remove(&index) {
            let took = self.now.saturating_sub(since);
            self.outcome.round_trips.push(RoundTrip { peer, index, took });
        }
    }

    /// The bytes that a chunk costs on a link.
    fn bytes(&self, index: u32) -> u64 {
        let range = self.scenario.geometry.range(index);
        range.end - range.start + self.scenario.overhead
    }
}
