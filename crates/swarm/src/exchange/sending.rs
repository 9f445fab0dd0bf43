//! Chunks on their way to a neighbour, from the offer on.

use std::time::Duration;

/// A chunk that was offered.
pub(super) struct Sending {
    pub(super) index: u32,
    pub(super) state: State,
    /// Its receiver has said meanwhile that it lacks it: what was sent was wrong, or late.
    pub(super) is_wanted: bool,
}

impl Sending {
    pub(super) fn is_withdrawn(&self) -> bool {
        matches!(self.state, State::Withdrawn(_))
    }
}

/// The state of an offered chunk.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// It waits for an answer.
    Offered(Offered),
    /// It has waited for long: it counts as not offered, until the answer comes.
    Withdrawn(Offered),
    /// It was accepted, and others leave before it. It takes up a slot.
    Accepted,
    /// It is leaving, and takes up a slot. `after`: the number of chunks that had left before it
    /// began.
    Leaving { after: u64 },
    /// Its receiver is slower than the others: it takes up no slot.
    Held,
}

/// The moment of an offer.
#[derive(Clone, Copy)]
pub(super) struct Offered {
    pub(super) at: Duration,
    /// The number of chunks that had left.
    pub(super) after: u64,
    /// It takes up a slot, until its receiver is found to answer later than others.
    pub(super) in_slot: bool,
}
