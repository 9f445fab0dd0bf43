//! One stream: what each direction is up to.

use crate::Class;
use crate::credit::{Credit, Window};
use crate::inbox::Inbox;

/// What one direction of a stream is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Messages may follow.
    Open,
    /// No more messages.
    Finished,
    /// Aborted by either side, with this code.
    Reset(u64),
}

/// What a writer that was refused waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    No,
    /// Credit of its stream.
    Credit,
    /// Its turn: room in the output, or credit of the connection.
    Turn,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) class: Class,
    /// Whether the peer opened it.
    pub(crate) by_peer: bool,
    /// Whether it counts as open on the wire: not both directions have ended.
    pub(crate) live: bool,
    pub(crate) sending: Direction,
    pub(crate) receiving: Direction,
    pub(crate) credit: Credit,
    pub(crate) window: Window,
    pub(crate) inbox: Inbox,
    /// The most memory, in bytes, that its reader has for what it took; counted while the peer's credit is the initial one.
    pub(crate) taken: usize,
    /// Whether bytes of a message have come whose end has not.
    pub(crate) receiving_partial: bool,
    /// Whether a message was begun and not ended.
    pub(crate) partial: bool,
    pub(crate) wait: Wait,
    /// Whether a Readable event is queued.
    pub(crate) readable: bool,
    /// Whether a WINDOW frame is due.
    pub(crate) window_due: bool,
    /// The round of transmission in which it last wanted to write, and what it wrote: bytes, and the
    /// cost of frames.
    pub(crate) turn: (u64, usize),
}

impl Stream {
    pub(crate) fn new(class: Class, by_peer: bool, credit: Credit, window: Window) -> Self {
        Self {
            class,
            by_peer,
            live: true,
            sending: Direction::Open,
            receiving: Direction::Open,
            credit,
            window,
            inbox: Inbox::default(),
            taken: 0,
            receiving_partial: false,
            partial: false,
            wait: Wait::No,
            readable: false,
            window_due: false,
            turn: (0, 0),
        }
    }

    /// The memory, in bytes, that the stream takes, with what its reader took.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.inbox.memory() + self.taken
    }

    /// Whether both directions have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sending != Direction::Open && self.receiving != Direction::Open
    }
}
