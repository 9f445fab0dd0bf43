//! What goes wrong between the parties, and with their clocks, at the times that a scenario says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::PeerId;

/// Faults beyond those of single peers. Both streams of a connection, over TCP or QUIC, keep the
/// order of what they carry and lose nothing while the connection is there. So a lost packet is a
/// delay, and a connection that ends loses all that is on its way.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The most that anything is delayed beyond the scenario's delay.
    pub jitter: Duration,
    /// The probability that a message or a chunk is lost and sent again. What follows it on its
    /// stream waits for it.
    pub loss: f64,
    /// Connections that end.
    pub breaks: Vec<Break>,
    /// Times in which some peers are cut off.
    pub partitions: Vec<Partition>,
    /// Times at which the coordinator is killed, and how long it is down. It starts again without a
    /// memory of its peers.
    pub restarts: Vec<(Duration, Duration)>,
    /// Clocks that jump.
    pub jumps: Vec<Jump>,
}

/// A connection that ends.
#[derive(Clone, Copy, Debug)]
pub struct Break {
    /// When.
    pub at: Duration,
    /// The peer at one end, by its position in the scenario.
    pub peer: usize,
    /// The peer at the other end; None for the coordinator.
    pub other: Option<usize>,
    /// How much later the other end notices it.
    pub noticed: Duration,
}

/// Peers that are cut off for a while. Connections stall; those that last longer than their timeout
/// end.
#[derive(Clone, Debug)]
pub struct Partition {
    /// When it begins.
    pub from: Duration,
    /// When it ends.
    pub to: Duration,
    /// The peers of one group, by their position in the scenario. The others are the other group.
    pub group: BTreeSet<usize>,
    /// Whether both groups reach the coordinator; otherwise it belongs to the others.
    pub spares_coordinator: bool,
}

/// A clock that jumps.
#[derive(Clone, Copy, Debug)]
pub struct Jump {
    /// When.
    pub at: Duration,
    /// The peer by its position in the scenario; None for the coordinator.
    pub party: Option<usize>,
    /// By how much.
    pub by: Duration,
    /// Whether it jumps back, at most to where it began.
    pub back: bool,
}

impl Partition {
    pub(super) fn separates(&self, one: Option<usize>, other: Option<usize>) -> bool {
        if self.spares_coordinator && (one.is_none() || other.is_none()) {
            return false;
        }
        let is_in = |party: Option<usize>| party.is_some_and(|number| self.group.contains(&number));
        is_in(one) != is_in(other)
    }
}

impl Faults {
    /// When the last partition ends that separates the two parties at `now`; None stands for the
    /// coordinator.
    pub(super) fn separated_until(
        &self,
        now: Duration,
        one: Option<usize>,
        other: Option<usize>,
    ) -> Option<Duration> {
        let running = self.partitions.iter().filter(|one| one.from <= now && now < one.to);
        running.filter(|part| part.separates(one, other)).map(|part| part.to).max()
    }

    pub(super) fn change_delays(&self) -> bool {
        !self.jitter.is_zero() || self.loss > 0.0 || !self.partitions.is_empty()
    }
}

/// A fault of the scenario that is due, by its position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Break(usize),
    /// Connections across a partition end.
    Cut(usize),
    Restart(usize),
    Jump(usize),
}

/// What differs from connection to connection.
#[derive(Default)]
pub(super) struct Paths {
    /// When the last message (`false`) or chunk (`true`) from one party to another arrives.
    pub(super) last: BTreeMap<(PeerId, PeerId, bool), Duration>,
    /// Ends of connections that do not know yet that these have ended: the party, and the other
    /// one.
    pub(super) unnoticed: BTreeSet<(PeerId, PeerId)>,
    /// Until when the coordinator is down.
    pub(super) down: Duration,
}
