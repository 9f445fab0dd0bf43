//! Events of a simulation, in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::faults::Fault;
use crate::PeerId;
use crate::message::Message;

/// Something that happens at a moment.
#[derive(Debug)]
pub(super) enum Event {
    Join(usize),
    Leave(usize),
    Deliver {
        from: PeerId,
        to: PeerId,
        /// The number of its connection.
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
    /// A peer has connected to another one. If that fails, only the first of the two reports it.
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
pub(super) struct Carried {
    pub(super) from: PeerId,
    pub(super) to: PeerId,
    /// The number of its connection.
    pub(super) link: u32,
    pub(super) index: u32,
    pub(super) good: bool,
}

/// Events that have not happened yet.
#[derive(Default)]
pub(super) struct Agenda {
    order: BinaryHeap<Reverse<(Duration, u64, Slot)>>,
    /// Events by the number in their slot; freed ones are reused.
    stored: Vec<Option<Event>>,
    free: Vec<Slot>,
    /// Messages, which all take the same time: they are delivered in the order in which they were
    /// sent.
    messages: VecDeque<(Duration, u64, Event)>,
    sequence: u64,
}

/// The place of an event in the store.
type Slot = usize;

impl Agenda {
    /// Adds an event. Of those at one moment, the first one added happens first.
    pub(super) fn add(&mut self, time: Duration, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.stored.push(None);
            self.stored.len() - 1
        });
        self.stored[slot] = Some(event);
        self.sequence += 1;
        self.order.push(Reverse((time, self.sequence, slot)));
    }

    /// Adds a message that takes the usual time. An earlier one has no later time.
    pub(super) fn add_message(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.messages.push_back((time, self.sequence, event));
    }

    /// Removes the next event. Returns it and its time.
    pub(super) fn next(&mut self) -> Option<(Duration, Event)> {
        let message = self.messages.front().map(|(time, sequence, _)| (*time, *sequence));
        let other = self.order.peek().map(|Reverse((time, sequence, _))| (*time, *sequence));
        if message.is_some_and(|message| other.is_none_or(|other| message < other)) {
            return self.messages.pop_front().map(|(time, _, event)| (time, event));
        }
        let Reverse((time, _, slot)) = self.order.pop()?;
        self.free.push(slot);
        self.stored[slot].take().map(|event| (time, event))
    }

    /// Removes all events but those that the scenario has set.
    pub(super) fn keep_scheduled(&mut self) {
        self.messages.clear();
        let all = std::mem::take(&mut self.order).into_sorted_vec();
        // `Reverse` makes the first event the greatest.
        for Reverse((time, _, slot)) in all.into_iter().rev() {
            let event = self.stored[slot].take();
            self.free.push(slot);
            if let Some(event @ (Event::Join(_) | Event::Leave(_) | Event::Fault(_))) = event {
                self.add(time, event);
            }
        }
    }
}
