//! A share in one process: the state machines of this crate on a simulated network with its own
//! clock. The same scenario gives the same result.

mod connection;
mod disruption;
mod event;
mod faults;
mod loss;
mod network;
mod nodes;
mod scenario;
mod transmission;

use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::mode::{Coordinator, Mode, Peer};
use crate::random::Random;
use crate::{Output, PeerId, coordinator, peer};
use event::{Agenda, Event};
use faults::Paths;
pub use faults::{Break, Faults, Jump, Partition};
use loss::Streams;
use network::Network;
use nodes::{CoordinatorNode, Node, Nodes, Timer};
pub use scenario::{
    ChunkCounts, Outcome, PeerScenario, Recovery, RoundTrip, Scenario, SourceScenario,
};

/// The most events at one moment: beyond, parties answer each other without end, and the simulation
/// stops.
const MOST_AT_ONCE: u64 = 1_000_000;

/// A running simulation.
struct Simulator<'a> {
    scenario: &'a Scenario,
    now: Duration,
    agenda: Agenda,
    coordinator: CoordinatorNode,
    nodes: Nodes,
    network: Network,
    streams: Streams,
    paths: Paths,
    random: Random,
    outcome: Outcome,
}

/// Runs a scenario until every peer has all chunks, has left, or knows what is lost; at most until
/// its time limit, or a million events at one moment.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut simulator = Simulator::new(scenario);
    let mut at_once = 0;
    while let Some((time, event)) = simulator.agenda.next() {
        at_once = if time == simulator.now { at_once + 1 } else { 0 };
        if time > scenario.limit || at_once > MOST_AT_ONCE || simulator.is_over() {
            break;
        }
        simulator.now = time;
        simulator.outcome.events += 1;
        simulator.happen(event);
    }
    simulator.conclude()
}

impl<'a> Simulator<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut random = Random::new(scenario.seed);
        let coordinator = Coordinator::new(scenario.mode, scenario.geometry, random.next());
        let mut simulator = Self {
            scenario,
            now: Duration::ZERO,
            agenda: Agenda::default(),
            coordinator: CoordinatorNode::new(coordinator),
            nodes: Nodes::new(scenario.peers.len()),
            network: Network::new(scenario),
            streams: Streams::new(scenario.seed),
            paths: Paths::default(),
            random,
            outcome: Outcome::default(),
        };
        for (number, peer) in scenario.peers.iter().enumerate() {
            simulator.join_at(peer.joins, number);
            if let Some((leaves, back)) = peer.leaves {
                simulator.agenda.add(leaves, Event::Leave(number));
                if let Some(back) = back {
                    simulator.join_at(back, number);
                }
            }
        }
        simulator.schedule_faults();
        simulator
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.agenda.add(self.now + delay, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Join(number) => self.join(number),
            Event::Leave(number) => self.leave(number),
            Event::Deliver { from, to, link, message } => self.deliver(from, to, link, message),
            Event::Arriving(carried) => self.receive(carried),
            Event::Chunk(carried) => self.received(*carried),
            Event::Sent { from: PeerId::COORDINATOR, to, index } => {
                self.coordinate(coordinator::Input::Sent { to, index })
            }
            Event::Sent { from, to, index } => self.input(from, peer::Input::Sent { to, index }),
            Event::Link { dialer, other, is_first } => self.link(dialer, other, is_first),
            // The report of an attempt that failed means nothing once there is another connection.
            Event::Unlink { at, other } if self.network.is_linked(at, other) => {}
            Event::Unlink { at, other } => self.input(at, peer::Input::Unlinked(other)),
            Event::Loaded(index) => self.loaded(index),
            Event::Unreadable { to, index } => {
                self.coordinate(coordinator::Input::Unreadable { to, index });
            }
            Event::Timeout(at) => self.timeout(at),
            Event::Fault(fault) => self.fault(fault),
            Event::Notice { at, other } => self.notice(at, other),
            Event::Left(peer) => self.coordinate(coordinator::Input::Left(peer)),
        }
    }

    fn loaded(&mut self, index: u32) {
        let good = !self.source_has_ended();
        if good {
            self.coordinator.cache.insert(index, PeerId::COORDINATOR);
        }
        self.coordinate(coordinator::Input::Loaded { index, good });
    }

    fn join_at(&mut self, time: Duration, number: usize) {
        self.nodes.all[number].returns += 1;
        self.agenda.add(time, Event::Join(number));
    }

    fn join(&mut self, number: usize) {
        let node = &mut self.nodes.all[number];
        node.returns -= 1;
        if node.peer.is_some() {
            return;
        }
        if let Some(later) = self.retry_at(number) {
            return self.join_at(later, number);
        }
        let id = self.coordinator.state.next_id();
        let geometry = self.scenario.geometry;
        let mut identity = [0; 32];
        identity[..8].copy_from_slice(&(number as u64).to_be_bytes());
        self.coordinate(coordinator::Input::Joined(identity));
        self.nodes.join(number, id);
        let node = &mut self.nodes.all[number];
        let have = node.kept.take().unwrap_or_else(|| Bitmap::new(geometry.chunks()));
        let seed = self.random.next();
        let addresses = vec![number.to_string()];
        let mut peer = Peer::new(self.scenario.mode, geometry, have, addresses, seed);
        if self.scenario.random_order {
            peer.request_at_random(seed);
        }
        node.peer = Some(peer);
        self.network.join(id, &self.scenario.peers[number]);
        self.network.link(PeerId::COORDINATOR, id);
        self.input(id, peer::Input::Linked(PeerId::COORDINATOR));
    }

    fn leave(&mut self, number: usize) {
        let id = self.nodes.all[number].id;
        if self.end_peer(number) {
            self.coordinate(coordinator::Input::Left(id));
        }
    }

    /// A peer is gone, which its neighbours notice. False if it does not run.
    fn end_peer(&mut self, number: usize) -> bool {
        let node = &mut self.nodes.all[number];
        let Some(peer) = node.peer.take() else { return false };
        node.kept = Some(peer.have().clone());
        let id = node.id;
        for other in self.network.leave(id) {
            if other != PeerId::COORDINATOR {
                self.after(self.scenario.delay, Event::Unlink { at: other, other: id });
            }
        }
        true
    }

    fn timeout(&mut self, at: PeerId) {
        let now = self.local(at);
        if at == PeerId::COORDINATOR {
            self.coordinator.timer.expire();
            let coordinator = &mut self.coordinator.state;
            if coordinator.next_timeout().is_some_and(|due| due <= now) {
                coordinator.handle_timeout(now);
            }
            return self.settle(at);
        }
        let Some(number) = self.nodes.number(at) else { return };
        let node = &mut self.nodes.all[number];
        node.timer.expire();
        if let Some(peer) = &mut node.peer {
            if peer.next_timeout().is_some_and(|due| due <= now) {
                peer.handle_timeout(now);
            }
            self.settle(at);
        }
    }

    fn coordinate(&mut self, input: coordinator::Input) {
        let now = self.now + self.coordinator.timer.clock;
        self.coordinator.state.handle(now, input);
        self.settle(PeerId::COORDINATOR);
    }

    fn input(&mut self, to: PeerId, input: peer::Input) {
        let Some(number) = self.nodes.number(to) else { return };
        let node = &mut self.nodes.all[number];
        let Some(peer) = &mut node.peer else { return };
        peer.handle(self.now + node.timer.clock, input);
        if node.finished.is_none() && peer.is_complete() {
            node.finished = Some(self.now);
        }
        self.settle(to);
    }

    /// Does what a party wants, and sets its timer.
    fn settle(&mut self, at: PeerId) {
        while let Some(output) = self.poll(at) {
            self.perform(at, output);
        }
        let number = self.nodes.number(at);
        let next = match number {
            None => self.coordinator.state.next_timeout(),
            Some(number) => self.nodes.all[number].peer.as_ref().and_then(Peer::next_timeout),
        };
        let due = next.and_then(|next| self.timer_mut(number).arm(next));
        if let Some(due) = due {
            self.agenda.add(due.max(self.now), Event::Timeout(at));
        }
    }

    /// The timer of a peer by its position in the scenario; None for the coordinator.
    fn timer_mut(&mut self, party: Option<usize>) -> &mut Timer {
        match party {
            None => &mut self.coordinator.timer,
            Some(number) => &mut self.nodes.all[number].timer,
        }
    }

    /// The time by the clock of a party.
    fn local(&self, at: PeerId) -> Duration {
        let number = self.nodes.number(at);
        let timer = number.map_or(&self.coordinator.timer, |number| &self.nodes.all[number].timer);
        self.now + timer.clock
    }

    fn poll(&mut self, at: PeerId) -> Option<Output> {
        match self.nodes.number(at) {
            None => self.coordinator.state.poll(),
            Some(number) => self.nodes.all[number].peer.as_mut()?.poll(),
        }
    }

    fn perform(&mut self, at: PeerId, output: Output) {
        match output {
            Output::Send(to, message) => self.send(at, to, message),
            Output::SendChunk { to, index, .. } => self.send_chunk(at, to, index),
            Output::Load(index) => self.after(Duration::ZERO, Event::Loaded(index)),
            Output::Keep { index, provider } => {
                let cache = &mut self.coordinator.cache;
                cache.insert(index, provider);
                if let Mode::Mediated(settings) = self.scenario.mode {
                    debug_assert!(cache.len() <= settings.cache.max(1));
                }
            }
            Output::Evict(index) => drop(self.coordinator.cache.remove(&index)),
            Output::Connect { peer, .. } => self.connect(at, peer),
            Output::Allow { peer, .. } => self.allow(at, peer),
            Output::Disconnect(peer) if at == PeerId::COORDINATOR => {
                if let Some(number) = self.nodes.number(peer) {
                    self.leave(number);
                }
            }
            Output::Disconnect(peer) => self.disconnect(at, peer),
        }
    }

    fn source_has_ended(&self) -> bool {
        self.scenario.source.ends.is_some_and(|ends| ends <= self.now)
    }

    fn is_over(&self) -> bool {
        // Most of the time, a peer near the front of the list is still busy.
        self.outcome.events.is_multiple_of(64) && self.nodes.all.iter().all(Node::is_over)
    }

    fn conclude(mut self) -> Outcome {
        for (node, peer) in self.nodes.all.iter().zip(&self.scenario.peers) {
            match node.finished {
                Some(time) => self.outcome.finished.push(time.saturating_sub(peer.joins)),
                None if node.peer.is_some() => self.outcome.incomplete += 1,
                None => {}
            }
            let lost = node.peer.as_ref().is_some_and(|peer| peer.lost().is_some());
            self.outcome.lost += usize::from(lost);
        }
        self.outcome.finished.sort_unstable();
        self.count();
        self.outcome.ended = self.now;
        self.outcome
    }
}
