//! Disruptions of a running simulation by the faults of its scenario.

use std::time::Duration;

use super::Simulator;
use super::event::Event;
use super::faults::{Break, Fault, Jump, Partition, Paths};
use super::network::Network;
use crate::mode::{Coordinator, Mode, Peer};
use crate::{PeerId, peer};

/// The pause before a peer tries the coordinator again, as in `levada get`.
const RECONNECT: Duration = Duration::from_secs(1);
/// The delay of something that was lost on its way and is sent again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// A connection over which nothing gets through for so long ends (the idle timeout of QUIC; TCP
/// takes longer).
const PATH_TIMEOUT: Duration = Duration::from_secs(30);

impl Simulator<'_> {
    pub(super) fn schedule_faults(&mut self) {
        let faults = &self.scenario.faults;
        for (number, fault) in faults.breaks.iter().enumerate() {
            self.agenda.add(fault.at, Event::Fault(Fault::Break(number)));
        }
        for (number, fault) in faults.partitions.iter().enumerate() {
            if fault.to > fault.from + PATH_TIMEOUT {
                self.agenda.add(fault.from + PATH_TIMEOUT, Event::Fault(Fault::Cut(number)));
            }
        }
        for (number, (at, _)) in faults.restarts.iter().enumerate() {
            self.agenda.add(*at, Event::Fault(Fault::Restart(number)));
        }
        for (number, fault) in faults.jumps.iter().enumerate() {
            self.agenda.add(fault.at, Event::Fault(Fault::Jump(number)));
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        let faults = &self.scenario.faults;
        match fault {
            Fault::Break(number) => {
                let Break { peer, other, noticed, .. } = faults.breaks[number];
                match other {
                    None => self.lose_coordinator(peer, noticed),
                    Some(other) => self.break_link(peer, other, noticed),
                }
            }
            Fault::Cut(number) => self.cut(&faults.partitions[number]),
            Fault::Restart(number) => self.restart_coordinator(faults.restarts[number].1),
            Fault::Jump(number) => self.jump(faults.jumps[number]),
        }
    }

    /// When something arrives that leaves `from` at `leaves`; None if it takes the usual delay.
    pub(super) fn arrival(
        &mut self,
        from: PeerId,
        to: PeerId,
        leaves: Duration,
        is_chunk: bool,
    ) -> Option<Duration> {
        let faults = &self.scenario.faults;
        if !faults.change_delays() {
            return None;
        }
        let one = self.nodes.number(from);
        let other = self.nodes.number(to);
        let start = faults.separated_until(leaves, one, other).unwrap_or(leaves);
        let jitter = u32::try_from(faults.jitter.as_micros()).unwrap_or(u32::MAX);
        let jitter = Duration::from_micros(u64::from(self.random.below(jitter)));
        let again = if self.random.chance(faults.loss) { RETRANSMISSION } else { Duration::ZERO };
        let arrives = start + self.scenario.delay + jitter + again;
        let last = self.paths.last.entry((from, to, is_chunk)).or_default();
        *last = arrives.max(*last);
        Some(*last)
    }

    /// Whether a connection can be made now.
    pub(super) fn can_connect(&self, one: PeerId, other: PeerId) -> bool {
        let numbers = (self.nodes.number(one), self.nodes.number(other));
        let faults = &self.scenario.faults;
        let pairs = [(one, other), (other, one)];
        faults.separated_until(self.now, numbers.0, numbers.1).is_none()
            && !pairs.iter().any(|pair| self.paths.unnoticed.contains(pair))
    }

    /// When a peer that cannot join now tries again.
    pub(super) fn retry_at(&self, number: usize) -> Option<Duration> {
        let faults = &self.scenario.faults;
        let is_down = self.paths.down > self.now;
        let waits = is_down || faults.separated_until(self.now, Some(number), None).is_some();
        waits.then(|| self.now + RECONNECT)
    }

    /// One end of a connection ends it by itself.
    pub(super) fn forget_break(&mut self, at: PeerId, other: PeerId) {
        self.paths.unnoticed.remove(&(at, other));
    }

    /// One end of a connection notices that it has ended, unless it has ended it by itself.
    pub(super) fn notice(&mut self, at: PeerId, other: PeerId) {
        if self.paths.unnoticed.remove(&(at, other)) {
            self.input(at, peer::Input::Unlinked(other));
        }
    }

    fn break_link(&mut self, one: usize, other: usize, noticed: Duration) {
        let one = self.nodes.all[one].id;
        let other = self.nodes.all[other].id;
        let both_run = self.nodes.is_running(one) && self.nodes.is_running(other);
        if !both_run || one == other || !self.network.unlink(one, other) {
            return;
        }
        for (at, from, delay) in [(one, other, Duration::ZERO), (other, one, noticed)] {
            self.paths.unnoticed.insert((at, from));
            self.after(delay, Event::Notice { at, other: from });
        }
    }

    /// A peer loses the coordinator. If it lacks chunks, it ends, and starts again with what it
    /// has, as `levada get` does. The coordinator notices it later, maybe only after the peer has
    /// joined again.
    fn lose_coordinator(&mut self, number: usize, noticed: Duration) {
        let node = &mut self.nodes.all[number];
        let id = node.id;
        let is_complete = node.peer.as_ref().is_some_and(Peer::is_complete);
        if node.peer.is_none() || !self.network.unlink(PeerId::COORDINATOR, id) {
            return;
        }
        if is_complete {
            self.input(id, peer::Input::Unlinked(PeerId::COORDINATOR));
        } else {
            self.end_peer(number);
            self.join_at(self.now + RECONNECT, number);
        }
        self.after(noticed, Event::Left(id));
    }

    fn cut(&mut self, partition: &Partition) {
        for number in 0..self.nodes.all.len() {
            if partition.separates(Some(number), None) {
                self.lose_coordinator(number, Duration::ZERO);
            }
            for other in number + 1..self.nodes.all.len() {
                if partition.separates(Some(number), Some(other)) {
                    self.break_link(number, other, Duration::ZERO);
                }
            }
        }
    }

    /// The coordinator is killed: all connections end, and what is on its way is lost. Peers that
    /// lack chunks come back; those that have all have no other to send them to.
    fn restart_coordinator(&mut self, down: Duration) {
        for number in 0..self.nodes.all.len() {
            let is_complete = self.nodes.all[number].peer.as_ref().is_some_and(Peer::is_complete);
            if self.nodes.all[number].peer.is_some() {
                self.end_peer(number);
                if !is_complete {
                    let late = Duration::from_millis(u64::from(self.random.below(1000)));
                    self.join_at(self.now + RECONNECT + late, number);
                }
            }
        }
        self.nodes.reset();
        self.agenda.keep_scheduled();
        self.count();
        let mode = match self.scenario.mode {
            Mode::Direct => Mode::Direct,
            // The node has stored who has exchanged a ticket.
            Mode::Mediated(settings) => {
                let admitted = self.nodes.all.iter().filter(|node| node.kept.is_some()).count();
                Mode::Mediated(settings.restarted(admitted))
            }
        };
        let seed = self.random.next();
        self.coordinator.restart(Coordinator::new(mode, self.scenario.geometry, seed));
        self.network = Network::new(self.scenario);
        self.paths = Paths { down: self.now + down, ..Default::default() };
    }

    fn jump(&mut self, Jump { party, by, back, .. }: Jump) {
        let id = party.map_or(PeerId::COORDINATOR, |number| self.nodes.all[number].id);
        let clock = &mut self.timer_mut(party).clock;
        *clock = if back { clock.saturating_sub(by) } else { *clock + by };
        if party.is_none() || self.nodes.is_running(id) {
            self.settle(id);
        }
    }

    /// Adds what the coordinator has done to the outcome.
    pub(super) fn count(&mut self) {
        let expelled = self.coordinator.state.expelled().iter();
        let expelled: Vec<usize> = expelled
            .map(|identity| {
                u64::from_be_bytes(identity[..8].try_into().unwrap_or_default()) as usize
            })
            .collect();
        self.outcome.expelled.extend(expelled);
        self.outcome.expelled.sort_unstable();
        self.outcome.expelled.dedup();
        let all = &mut self.outcome.counters;
        let counters = self.coordinator.state.counters();
        all.fetches += counters.fetches;
        all.sent += counters.sent;
        all.loads += counters.loads;
        all.source_reads += counters.source_reads;
        all.distributed = all.distributed.or(counters.distributed);
    }
}
