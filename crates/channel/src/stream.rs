//! The state of one stream.

use crate::credit::{Credit, Window};
use crate::recv_buffer::RecvBuffer;

/// The precedence of a stream when there is more to send than the transport carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Goes first; for data that a user waits for.
    Interactive,
    /// Goes when no interactive stream has data to send.
    Bulk,
}

/// The state of one direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Messages may follow.
    Open,
    /// No more messages.
    Finished,
    /// Aborted by either side, with this code.
    Reset(u64),
}

/// What a refused writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    No,
    /// Credit of its stream.
    Credit,
    /// A quantum of the scheduler: room in the output, or credit of the connection.
    Quantum,
}

/// How much of its quantum a stream has used in one round of transmission.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) round: u64,
    /// Bytes, and the cost of frames.
    pub(crate) written: usize,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) class: Class,
    /// Whether the peer opened it.
    pub(crate) by_peer: bool,
    /// Whether it counts as open on the wire: at least one direction has not ended.
    pub(crate) live: bool,
    pub(crate) sending: Direction,
    pub(crate) receiving: Direction,
    pub(crate) credit: Credit,
    pub(crate) window: Window,
    pub(crate) recv_buffer: RecvBuffer,
    /// An upper bound on the memory, in bytes, of what its reader took; counted while the peer's credit is the initial one.
    pub(crate) taken: usize,
    /// Whether a received message is incomplete.
    pub(crate) receiving_partial: bool,
    /// Whether a sent message is incomplete.
    pub(crate) partial: bool,
    pub(crate) wait: Wait,
    /// Whether a Readable event is queued.
    pub(crate) readable: bool,
    /// Whether a WINDOW frame is due.
    pub(crate) window_due: bool,
    /// What it wrote in the round in which it last tried to write.
    pub(crate) usage: Usage,
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
            recv_buffer: RecvBuffer::default(),
            taken: 0,
            receiving_partial: false,
            partial: false,
            wait: Wait::No,
            readable: false,
            window_due: false,
            usage: Usage::default(),
        }
    }

    /// The memory of the stream, in bytes, with what its reader took.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.recv_buffer.memory() + self.taken
    }

    /// Whether both directions have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sending != Direction::Open && self.receiving != Direction::Open
    }
}
