//! The parties of a simulation: the coordinator and the peers, with their clocks.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::PeerId;
use crate::bitmap::Bitmap;
use crate::mode::{Coordinator, Peer};

/// The clock of a party, and its timeouts.
#[derive(Default)]
pub(super) struct Timer {
    /// The time by which its clock is ahead.
    pub(super) clock: Duration,
    /// The moments for which it has a timeout among the events, the next one last.
    armed: Vec<Duration>,
}

impl Timer {
    /// Arms the timer for a moment by the clock of the party. Returns the moment of the timeout;
    /// None if an earlier one is among the events.
    pub(super) fn arm(&mut self, due: Duration) -> Option<Duration> {
        let due = due.saturating_sub(self.clock);
        let is_first = self.armed.last().is_none_or(|armed| due < *armed);
        is_first.then(|| {
            self.armed.push(due);
            due
        })
    }

    /// The next timeout happens.
    pub(super) fn expire(&mut self) {
        self.armed.pop();
    }

    /// Forgets all timeouts, which no longer concern the party.
    pub(super) fn reset(&mut self) {
        self.armed.clear();
    }
}

/// The coordinator, and the chunks that it has in memory.
pub(super) struct CoordinatorNode {
    pub(super) state: Coordinator,
    pub(super) timer: Timer,
    /// In mediated mode: the chunks in the cache, and the providers whose copies they are.
    pub(super) cache: BTreeMap<u32, PeerId>,
}

impl CoordinatorNode {
    pub(super) fn new(state: Coordinator) -> Self {
        Self { state, timer: Timer::default(), cache: BTreeMap::new() }
    }

    /// It was killed, and is started again with this state. Its clock is the same.
    pub(super) fn restart(&mut self, state: Coordinator) {
        self.state = state;
        self.timer.reset();
        self.cache.clear();
    }
}

/// One peer of the scenario, running or not.
pub(super) struct Node {
    pub(super) id: PeerId,
    pub(super) peer: Option<Peer>,
    /// The chunks on its disk.
    pub(super) kept: Option<Bitmap>,
    pub(super) timer: Timer,
    /// The number of times that it is going to join.
    pub(super) returns: u32,
    pub(super) finished: Option<Duration>,
    /// If round trips are recorded: the moments at which chunks were requested that are missing.
    pub(super) requested: HashMap<u32, Duration>,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            id: PeerId::COORDINATOR,
            peer: None,
            kept: None,
            timer: Timer::default(),
            returns: 0,
            finished: None,
            requested: HashMap::new(),
        }
    }

    /// Gives the node a number, or takes it away ([`PeerId::COORDINATOR`]).
    pub(super) fn set_id(&mut self, id: PeerId) {
        self.id = id;
        self.timer.reset();
    }

    pub(super) fn is_over(&self) -> bool {
        match &self.peer {
            Some(running) => self.finished.is_some() || running.lost().is_some(),
            None => self.returns == 0,
        }
    }
}

/// All peers of the scenario.
pub(super) struct Nodes {
    pub(super) all: Vec<Node>,
    /// The node of each peer, by its number.
    owners: Vec<usize>,
}

impl Nodes {
    pub(super) fn new(count: usize) -> Self {
        Self { all: (0..count).map(|_| Node::new()).collect(), owners: vec![usize::MAX] }
    }

    /// The node at this position in the scenario gets the next number, which is `id`.
    pub(super) fn join(&mut self, number: usize, id: PeerId) {
        self.owners.push(number);
        self.all[number].set_id(id);
    }

    /// Takes all numbers away.
    pub(super) fn reset(&mut self) {
        self.owners.truncate(1);
        self.all.iter_mut().for_each(|node| node.set_id(PeerId::COORDINATOR));
    }

    /// The position of a peer that is running under this number; None for the coordinator and for
    /// peers that are gone.
    pub(super) fn number(&self, peer: PeerId) -> Option<usize> {
        let number = *self.owners.get(peer.0 as usize)?;
        self.all.get(number).filter(|node| node.id == peer).map(|_| number)
    }

    /// The peer that is running under this number.
    pub(super) fn running(&self, peer: PeerId) -> Option<&Peer> {
        self.number(peer).and_then(|number| self.all[number].peer.as_ref())
    }

    pub(super) fn is_running(&self, peer: PeerId) -> bool {
        self.running(peer).is_some()
    }

    /// Returns true if a running peer has a chunk.
    pub(super) fn has(&self, peer: PeerId, index: u32) -> bool {
        self.running(peer).is_some_and(|peer| peer.have().contains(index))
    }
}
