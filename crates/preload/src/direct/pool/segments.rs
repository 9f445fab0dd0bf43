//! The segments of a client, and its connections in them.

use std::sync::atomic::Ordering;

use levada_ring::queue::{Open, Waiting};
use levada_ring::{SEGMENTS, Side, Waiter};

use super::{Pair, Role};
use crate::direct::ports;
use crate::{memory, waking};

/// The client's segments. Empty at the other side.
pub struct Segments {
    /// Those that this process has closed. The other side may have them still.
    closed: Vec<u8>,
    generations: Vec<u64>,
    /// The port of each, until no process of either side has the connection.
    ports: Vec<Option<u8>>,
    /// Segments that were ever used.
    used: u8,
    /// Connections that were made.
    made: u32,
}

/// Closed segments that are looked at, from the last one on, before another is used: the memory of
/// the last is in the cache.
const LOOKS: usize = 4;

/// What has become of a connect(2).
pub enum Made {
    /// It is a connection, in this segment, and with this generation.
    Connection((u8, u64)),
    /// There is no room for it now.
    NoRoom,
    /// No process that lives has the listener open.
    Closed,
}

impl Segments {
    /// No segments are used yet. Only a client has some.
    pub fn new(side: Side) -> Self {
        let count = if side == Side::Connector { SEGMENTS } else { 0 };
        Self {
            closed: Vec::with_capacity(count),
            generations: vec![0; count],
            ports: vec![None; count],
            used: 0,
            made: 0,
        }
    }

    /// The process has closed the connection of a segment.
    pub fn closed(&mut self, number: u8) {
        self.closed.push(number);
    }

    /// Gives back all ports, and the memory of the segments that were used.
    pub fn give_back(&mut self) {
        (0..self.used).for_each(|number| self.give_port_back(number));
        memory::give_pooled_back(self.used.into());
    }

    /// The connection of a segment has ended at both sides: its port can be another one's.
    fn give_port_back(&mut self, number: u8) {
        if let Some(port) = self.ports[usize::from(number)].take() {
            ports::give_back(port);
        }
    }
}

impl Pair {
    /// Makes a connection to the listener with this number.
    pub fn connect(&self, listener: u32, is_ipv6: bool) -> Made {
        if !self.enter() {
            return Made::Closed;
        }
        // It may have become the pair of another one since the caller has found it.
        let is_right = self.role() == Role::Client(listener);
        let made = if is_right { self.connect_entered(is_ipv6) } else { Made::Closed };
        if !matches!(made, Made::Connection(..)) {
            self.leave();
        }
        made
    }

    fn connect_entered(&self, is_ipv6: bool) -> Made {
        let queue = self.queue();
        let backlog = self.backlog();
        if backlog == 0 {
            return Made::Closed;
        }
        if queue.count() >= backlog {
            return Made::NoRoom;
        }
        let begin = |segments: &mut Segments| self.begin(segments, is_ipv6);
        let Some((generation, waiting)) = self.segments.with(begin).flatten() else {
            return Made::NoRoom;
        };
        let number = waiting.segment;
        // The listener was there after the connection began to wait: else it may have ended before,
        // and another process listens now. What was taken is a connection, which has perhaps ended.
        if self.is_served(|open| open.backlog > 0) || !queue.undo(waiting) {
            return Made::Connection((number, generation));
        }
        let ends = self.segment(number).ends();
        Side::BOTH.into_iter().for_each(|side| ends.acknowledge(side, generation));
        self.segments.with(|segments| segments.closed(number));
        Made::Closed
    }

    /// Lets a connection wait in a free segment. `None` if there is none, or no memory.
    fn begin(&self, segments: &mut Segments, is_ipv6: bool) -> Option<(u64, Waiting)> {
        let number = self.take_closed(segments).or_else(|| self.take_unused(segments))?;
        // After it: a segment that is free again gives its port back.
        let Some(port) = ports::take() else {
            segments.closed.push(number);
            return None;
        };
        let segment = self.pool.segment(number);
        let generation = segment.begin();
        segment.ends().set_address(port, is_ipv6);
        segments.generations[usize::from(number)] = generation;
        segments.ports[usize::from(number)] = Some(port);
        segments.made = segments.made.wrapping_add(1);
        Some((generation, self.queue().push((number, generation), segments.made)))
    }

    fn take_closed(&self, segments: &mut Segments) -> Option<u8> {
        let is_free = |number: &u8| {
            let generation = segments.generations[usize::from(*number)];
            let ends = self.pool.segment(*number).ends();
            // Of a side that has not acknowledged, all processes may have been killed.
            let is_over =
                |side| ends.has_acknowledged(side, generation) || self.is_left(side, *number);
            Side::BOTH.into_iter().all(is_over)
        };
        let is_full = usize::from(segments.used) == SEGMENTS;
        let looks = if is_full { SEGMENTS } else { LOOKS };
        let first = segments.closed.len().saturating_sub(looks);
        let at = segments.closed[first..].iter().rposition(is_free)?;
        let number = segments.closed.remove(first + at);
        segments.give_port_back(number);
        Some(number)
    }

    fn take_unused(&self, segments: &mut Segments) -> Option<u8> {
        let number = segments.used;
        if usize::from(number) == SEGMENTS || !memory::take_pooled() {
            return None;
        }
        if self.pool.allocate(number).is_err() {
            memory::give_pooled_back(1);
            return None;
        }
        segments.used += 1;
        Some(number)
    }

    /// Wakes the threads of the listener, by its client.
    pub fn ring(&self) {
        for (slot, other) in self.others.iter() {
            let bells = self.queue().take_bells(slot);
            if bells == 0 {
                continue;
            }
            let mark = self.queue().find(slot).map_or(0, |open| open.mark);
            let is_asked = |bell: &u8| bells >> bell & 1 != 0;
            for bell in (0..levada_ring::wire::BELLS as u8).filter(is_asked) {
                waking::ring_number(other.number(), Some(Waiter::Bell { bell, mark }));
            }
        }
    }

    /// Takes a connection back that no process will accept.
    pub(super) fn undo_waiting(&self, place: (u8, u64)) -> bool {
        let is_undone = self.queue().undo_waiting(place);
        if is_undone {
            self.segment(place.0).ends().acknowledge(Side::Acceptor, place.1);
        }
        is_undone
    }

    /// Returns true if a process that certainly lives has the listener, as `is_wanted` says.
    pub(super) fn is_served(&self, is_wanted: impl Fn(Open) -> bool) -> bool {
        self.others
            .iter()
            .any(|(slot, other)| self.queue().find(slot).is_some_and(&is_wanted) && other.is_up())
    }

    /// Connections that may wait; 0 if no process lets them in.
    fn backlog(&self) -> usize {
        let backlogs = self.others.iter().filter_map(|(slot, _)| self.queue().find(slot));
        let backlog = backlogs.map(|open| usize::from(open.backlog)).max();
        if backlog.is_some() {
            self.was_open.store(true, Ordering::Relaxed);
        }
        backlog.unwrap_or(0)
    }
}
