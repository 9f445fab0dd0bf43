//! A share in one process: the state machines of this crate on a simulated network with its own clock. The same scenario gives the same
//! result.

mod disruption;
mod faults;
mod loss;
mod network;
mod scenario;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use crate::bitmap::Bitmap;
use crate::message::Message;
use crate::mode::{Coordinator, Mode, Peer};
use crate::random::Random;
use crate::{Output, PeerId, coordinator, peer};
pub use faults::{Break, Faults, Jump, Partition};
use faults::{Fault, Paths};
use loss::Streams;
use network::Network;
pub use scenario::{Outcome, PeerScenario, Recovery, RoundTrip, Scenario};

/// The time until a peer gives up connecting to one that does not answer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer waits for the connection of another before it connects by itself.
const SECOND_ATTEMPT: Duration = Duration::from_millis(250);
/// The most events at one moment: beyond, parties answer each other without end, and the simulation stops.
const MOST_AT_ONCE: u64 = 1_000_000;

/// Something that happens at a moment.
#[derive(Debug)]
enum Event {
    Join(usize),
    Leave(usize),
    Deliver {
        from: PeerId,
        to: PeerId,
        /// Of which connection it is.
        link: u32,
        message: Message,
    },
    /// The last byte of a chunk reaches the receiver's downlink.
    Arriving(Box<Carried>),
    Chunk(Box<Carried>),
    Sent {
        from: PeerId,
        to: PeerId,
        index: u32,
    },
    /// A peer has connected to another one. Only the first of the two that tries says if that fails.
    Link {
        dialer: PeerId,
        other: PeerId,
        is_first: bool,
    },
    Unlink {
        at: PeerId,
        other: PeerId,
    },
    /// A chunk was read from the source into the cache.
    Loaded(u32),
    /// A chunk could not be read from the source for this peer.
    Unreadable {
        to: PeerId,
        index: u32,
    },
    Timeout(PeerId),
    Fault(Fault),
    /// One end of a connection notices that it has ended.
    Notice {
        at: PeerId,
        other: PeerId,
    },
    /// The coordinator notices that a peer is gone.
    Left(PeerId),
}

/// A chunk on its way.
#[derive(Debug)]
struct Carried {
    from: PeerId,
    to: PeerId,
    /// Of which connection it is.
    link: u32,
    index: u32,
    good: bool,
}

/// A running simulation.
struct Simulator<'a> {
    scenario: &'a Scenario,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Slot)>>,
    /// Events by the number in their slot; freed ones are reused.
    stored: Vec<Option<Event>>,
    free: Vec<usize>,
    /// Messages, which all take the same time: they are delivered in the order in which they were sent.
    messages: VecDeque<(Duration, u64, Event)>,
    sequence: u64,
    coordinator: Coordinator,
    coordinator_armed: Armed,
    /// How much its clock is ahead.
    coordinator_clock: Duration,
    /// In mediated mode: the chunks in the coordinator's memory, and whose copies they are.
    cache: BTreeMap<u32, PeerId>,
    nodes: Vec<Node>,
    /// The node of each peer, by its number.
    owners: Vec<usize>,
    network: Network,
    streams: Streams,
    paths: Paths,
    random: Random,
    outcome: Outcome,
}

/// The place of an event in the store.
type Slot = usize;

/// One peer of the scenario, running or not.
struct Node {
    id: PeerId,
    peer: Option<Peer>,
    /// What is on its disk.
    kept: Option<Bitmap>,
    armed: Armed,
    /// How much its clock is ahead.
    clock: Duration,
    /// How often it is going to join.
    returns: u32,
    finished: Option<Duration>,
    /// If round trips are recorded: when chunks were requested that have not come.
    requested: HashMap<u32, Duration>,
}

/// The moments for which a party has a timeout among the events, the next one last.
#[derive(Default)]
struct Armed(Vec<Duration>);

/// Runs a scenario until every peer has all chunks, has left, or knows what is lost; at most until its time limit, or a million
/// events at one moment.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut simulator = Simulator::new(scenario);
    let mut at_once = 0;
    while let Some((time, event)) = simulator.next() {
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
        let node = |_| Node {
            id: PeerId::COORDINATOR,
            peer: None,
            kept: None,
            armed: Armed::default(),
            clock: Duration::ZERO,
            returns: 0,
            finished: None,
            requested: HashMap::new(),
        };
        let mut simulator = Self {
            scenario,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            stored: Vec::new(),
            free: Vec::new(),
            messages: VecDeque::new(),
            sequence: 0,
            coordinator: Coordinator::new(scenario.mode, scenario.geometry, random.next()),
            coordinator_armed: Armed::default(),
            coordinator_clock: Duration::ZERO,
            cache: BTreeMap::new(),
            nodes: (0..scenario.peers.len()).map(node).collect(),
            owners: vec![usize::MAX],
            network: Network::new(scenario),
            streams: Streams::new(scenario.seed),
            paths: Paths::default(),
            random,
            outcome: Outcome::default(),
        };
        for (number, peer) in scenario.peers.iter().enumerate() {
            simulator.join_at(peer.joins, number);
            if let Some((leaves, back)) = peer.leaves {
                simulator.at(leaves, Event::Leave(number));
                if let Some(back) = back {
                    simulator.join_at(back, number);
                }
            }
        }
        simulator.schedule_faults();
        simulator
    }

    fn at(&mut self, time: Duration, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.stored.push(None);
            self.stored.len() - 1
        });
        self.stored[slot] = Some(event);
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, slot)));
    }

    /// The next event and its time.
    fn next(&mut self) -> Option<(Duration, Event)> {
        let message = self.messages.front().map(|(time, sequence, _)| (*time, *sequence));
        let other = self.events.peek().map(|Reverse((time, sequence, _))| (*time, *sequence));
        if message.is_some_and(|message| other.is_none_or(|other| message < other)) {
            return self.messages.pop_front().map(|(time, _, event)| (time, event));
        }
        let Reverse((time, _, slot)) = self.events.pop()?;
        self.free.push(slot);
        self.stored[slot].take().map(|event| (time, event))
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    fn happen(&mut self, event: Event) {
        let delay = self.scenario.delay;
        match event {
            Event::Join(number) => self.join(number),
            Event::Leave(number) => self.leave(number),
            Event::Deliver { from, to, link, message } => {
                if self.network.link_of(from, to) == Some(link) {
                    self.outcome.messages += 1;
                    if from == PeerId::COORDINATOR || to == PeerId::COORDINATOR {
                        self.outcome.coordinator_messages += 1;
                        self.outcome.coordinator_bytes += message.encode().len() as u64;
                    }
                    self.outcome.declined += u64::from(matches!(message, Message::Decline(_)));
                    match to {
                        PeerId::COORDINATOR => {
                            self.coordinate(coordinator::Input::Message(from, message))
                        }
                        to => self.input(to, peer::Input::Message(from, message)),
                    }
                }
            }
            Event::Arriving(carried) => {
                let bytes = self.bytes(carried.index);
                let arrived = self.network.receive(self.now, carried.to, bytes);
                self.at(arrived, Event::Chunk(carried));
            }
            Event::Chunk(carried) => {
                let Carried { from, to, link, index, good } = *carried;
                let is_linked = self.network.link_of(from, to) == Some(link);
                if is_linked && to == PeerId::COORDINATOR {
                    self.coordinate(coordinator::Input::Chunk { from, index, good });
                } else if is_linked {
                    self.outcome.duplicates += u64::from(self.has(to, index));
                    self.record(to, index, good);
                    self.input(to, peer::Input::Chunk { from, index, good });
                }
            }
            Event::Sent { from: PeerId::COORDINATOR, to, index } => {
                self.coordinate(coordinator::Input::Sent { to, index })
            }
            Event::Sent { from, to, index } => self.input(from, peer::Input::Sent { to, index }),
            Event::Link { dialer, other, is_first: false }
                if self.network.is_linked(dialer, other) => {}
            Event::Link { dialer, other, is_first } => {
                if self.is_running(dialer)
                    && self.is_running(other)
                    && self.can_connect(dialer, other)
                    && self.network.link(dialer, other)
                {
                    self.input(other, peer::Input::Linked(dialer));
                    self.input(dialer, peer::Input::Linked(other));
                } else if is_first {
                    self.after(delay, Event::Unlink { at: dialer, other });
                }
            }
            // The report of an attempt that failed means nothing once there is another connection.
            Event::Unlink { at, other } if self.network.is_linked(at, other) => {}
            Event::Unlink { at, other } => self.input(at, peer::Input::Unlinked(other)),
            Event::Loaded(index) => {
                let good = !self.source_has_ended();
                if good {
                    self.cache.insert(index, PeerId::COORDINATOR);
                }
                self.coordinate(coordinator::Input::Loaded { index, good });
            }
            Event::Unreadable { to, index } => {
                self.coordinate(coordinator::Input::Unreadable { to, index });
            }
            Event::Timeout(at) => self.timeout(at),
            Event::Fault(fault) => self.fault(fault),
            Event::Notice { at, other } => self.notice(at, other),
            Event::Left(peer) => self.left(peer),
        }
    }

    fn join_at(&mut self, time: Duration, number: usize) {
        self.nodes[number].returns += 1;
        self.at(time, Event::Join(number));
    }

    fn join(&mut self, number: usize) {
        self.nodes[number].returns -= 1;
        if self.nodes[number].peer.is_some() {
            return;
        }
        if let Some(later) = self.retry_at(number) {
            return self.join_at(later, number);
        }
        let id = self.coordinator.next_id();
        let geometry = self.scenario.geometry;
        let mut identity = [0; 32];
        identity[..8].copy_from_slice(&(number as u64).to_be_bytes());
        self.coordinate(coordinator::Input::Joined(identity));
        self.owners.push(number);
        let have = self.nodes[number].kept.take().unwrap_or_else(|| Bitmap::new(geometry.chunks()));
        let seed = self.random.next();
        let node = &mut self.nodes[number];
        (node.id, node.armed) = (id, Armed::default());
        let mut peer =
            Peer::new(self.scenario.mode, geometry, have, vec![number.to_string()], seed);
        if self.scenario.random_order {
            peer.request_at_random(seed);
        }
        node.peer = Some(peer);
        self.network.join(id, &self.scenario.peers[number]);
        self.network.link(PeerId::COORDINATOR, id);
        self.input(id, peer::Input::Linked(PeerId::COORDINATOR));
    }

    fn leave(&mut self, number: usize) {
        let id = self.nodes[number].id;
        if self.end_peer(number) {
            self.coordinate(coordinator::Input::Left(id));
        }
    }

    /// A peer is gone, which its neighbours notice. False if it does not run.
    fn end_peer(&mut self, number: usize) -> bool {
        let node = &mut self.nodes[number];
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
            self.coordinator_armed.0.pop();
            if self.coordinator.next_timeout().is_some_and(|due| due <= now) {
                self.coordinator.handle_timeout(now);
            }
            return self.settle(at);
        }
        let Some(number) = self.number(at) else { return };
        self.nodes[number].armed.0.pop();
        if let Some(peer) = &mut self.nodes[number].peer {
            if peer.next_timeout().is_some_and(|due| due <= now) {
                peer.handle_timeout(now);
            }
            self.settle(at);
        }
    }

    fn coordinate(&mut self, input: coordinator::Input) {
        self.coordinator.handle(self.now + self.coordinator_clock, input);
        self.settle(PeerId::COORDINATOR);
    }

    fn input(&mut self, to: PeerId, input: peer::Input) {
        let Some(number) = self.number(to) else { return };
        let node = &mut self.nodes[number];
        let Some(peer) = &mut node.peer else { return };
        peer.handle(self.now + node.clock, input);
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
        let number = self.number(at);
        let (next, armed, clock) = match number {
            None => {
                let next = self.coordinator.next_timeout();
                (next, &mut self.coordinator_armed, self.coordinator_clock)
            }
            Some(number) => {
                let node = &mut self.nodes[number];
                (node.peer.as_ref().and_then(Peer::next_timeout), &mut node.armed, node.clock)
            }
        };
        let next = next.map(|next| next.saturating_sub(clock));
        if let Some(next) = next.filter(|next| armed.0.last().is_none_or(|armed| next < armed)) {
            armed.0.push(next);
            self.at(next.max(self.now), Event::Timeout(at));
        }
    }

    /// What the clock of a party shows.
    fn local(&self, at: PeerId) -> Duration {
        let clock = self.number(at).map_or(self.coordinator_clock, |at| self.nodes[at].clock);
        self.now + clock
    }

    fn poll(&mut self, at: PeerId) -> Option<Output> {
        match self.number(at) {
            None => self.coordinator.poll(),
            Some(number) => self.nodes[number].peer.as_mut()?.poll(),
        }
    }

    fn perform(&mut self, at: PeerId, output: Output) {
        let delay = self.scenario.delay;
        match output {
            Output::Send(to, message) => {
                debug_assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
                self.send(at, to, message);
            }
            Output::SendChunk { to, index, .. } => self.send_chunk(at, to, index),
            Output::Load(index) => self.after(Duration::ZERO, Event::Loaded(index)),
            Output::Keep { index, provider } => {
                self.cache.insert(index, provider);
                if let Mode::Mediated(settings) = self.scenario.mode {
                    debug_assert!(self.cache.len() <= settings.cache.max(1));
                }
            }
            Output::Evict(index) => drop(self.cache.remove(&index)),
            Output::Connect { peer, .. } => {
                if self.reaches(at, peer) {
                    let link = Event::Link { dialer: at, other: peer, is_first: true };
                    self.after(delay * 2, link);
                } else {
                    self.after(DIAL_TIMEOUT, Event::Unlink { at, other: peer });
                }
            }
            Output::Allow { peer, .. } => {
                if self.reaches(at, peer) {
                    let link = Event::Link { dialer: at, other: peer, is_first: false };
                    self.after(SECOND_ATTEMPT + delay * 2, link);
                }
            }
            Output::Disconnect(peer) if at == PeerId::COORDINATOR => {
                if let Some(number) = self.number(peer) {
                    self.leave(number);
                }
            }
            Output::Disconnect(peer) => {
                self.forget_break(at, peer);
                if self.network.unlink(at, peer) {
                    self.after(delay, Event::Unlink { at: peer, other: at });
                }
            }
        }
    }

    /// Whether a peer can connect to another one now.
    fn reaches(&self, from: PeerId, to: PeerId) -> bool {
        let reachable = self.number(to).is_some_and(|to| self.scenario.peers[to].reachable);
        reachable && self.can_connect(from, to)
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: Message) {
        if let Some(number) = self.number(from).filter(|_| self.scenario.trace) {
            let requests = message.requests().map(|index| (index, self.now));
            self.nodes[number].requested.extend(requests);
        }
        let Some(link) = self.network.link_of(from, to) else { return };
        if self.scenario.loss > 0.0 {
            let at = self.streams.message(self.scenario, self.now, (from, to), &message);
            return self.at(at, Event::Deliver { from, to, link, message });
        }
        let event = Event::Deliver { from, to, link, message };
        match self.arrival(from, to, self.now, false) {
            Some(arrives) => self.at(arrives, event),
            None => {
                self.sequence += 1;
                self.messages.push_back((self.now + self.scenario.delay, self.sequence, event));
            }
        }
    }

    /// Records the time since a chunk was requested, when it comes.
    fn record(&mut self, to: PeerId, index: u32, good: bool) {
        let Some(peer) = self.number(to).filter(|_| self.scenario.trace && good) else { return };
        if let Some(since) = self.nodes[peer].requested.remove(&index) {
            let took = self.now.saturating_sub(since);
            self.outcome.round_trips.push(RoundTrip { peer, index, took });
        }
    }

    /// The bytes that a chunk costs on a link.
    fn bytes(&self, index: u32) -> u64 {
        let range = self.scenario.geometry.range(index);
        range.end - range.start + self.scenario.overhead
    }

    fn send_chunk(&mut self, from: PeerId, to: PeerId, index: u32) {
        let is_cached = self.scenario.mode != Mode::Direct || from != PeerId::COORDINATOR;
        if !is_cached && self.source_has_ended() {
            return self.after(Duration::ZERO, Event::Unreadable { to, index });
        }
        let is_mediating = is_cached && from == PeerId::COORDINATOR;
        debug_assert!(!is_mediating || self.cache.contains_key(&index));
        let Some(link) = self.network.link_of(from, to) else {
            return self.after(Duration::ZERO, Event::Sent { from, to, index });
        };
        let bytes = self.bytes(index);
        let left = self.network.send(self.now, from, bytes);
        self.outcome.chunks_sent += 1;
        self.outcome.source_bytes += if from == PeerId::COORDINATOR { bytes } else { 0 };
        let poison = self.number(from).map_or(0.0, |number| self.scenario.peers[number].poison);
        let good = poison == 0.0 || !self.random.chance(poison);
        self.at(left, Event::Sent { from, to, index });
        let carried = Box::new(Carried { from, to, link, index, good });
        let mut arrives = self.arrival(from, to, left, true).unwrap_or(left + self.scenario.delay);
        if self.scenario.loss > 0.0 {
            let delivery = self.streams.chunk(self.scenario, arrives, (from, to), bytes);
            arrives = delivery.at;
            // Repetitions take their part of the uplink, too.
            self.network.send(
                self.now,
                from,
                bytes.min(loss::PACKET) * u64::from(delivery.sent - 1),
            );
        }
        self.at(arrives, Event::Arriving(carried));
    }

    /// The node of a peer that is running under this number; None for the coordinator and for peers that are gone.
    fn number(&self, peer: PeerId) -> Option<usize> {
        let number = *self.owners.get(peer.0 as usize)?;
        self.nodes.get(number).filter(|node| node.id == peer).map(|_| number)
    }

    fn source_has_ended(&self) -> bool {
        self.scenario.source_ends.is_some_and(|ends| ends <= self.now)
    }

    fn is_running(&self, peer: PeerId) -> bool {
        self.number(peer).is_some_and(|number| self.nodes[number].peer.is_some())
    }

    fn has(&self, peer: PeerId, index: u32) -> bool {
        let node = self.number(peer).map(|number| &self.nodes[number]);
        node.and_then(|node| node.peer.as_ref()).is_some_and(|peer| peer.have().contains(index))
    }

    fn is_over(&self) -> bool {
        let over = |node: &Node| match &node.peer {
            Some(running) => node.finished.is_some() || running.lost().is_some(),
            None => node.returns == 0,
        };
        // Most of the time, a peer near the front of the list is still busy.
        self.outcome.events.is_multiple_of(64) && self.nodes.iter().all(over)
    }

    fn conclude(mut self) -> Outcome {
        for (node, peer) in self.nodes.iter().zip(&self.scenario.peers) {
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
