//! The state of one stream.

use crate::StreamError;
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
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// The sending direction of a stream.
pub(crate) struct Sender {
    pub(crate) direction: Direction,
    pub(crate) credit: Credit,
    /// A message is incomplete.
    pub(crate) partial: bool,
    pub(crate) wait: Wait,
    /// The usage in the round in which it last tried to write.
    pub(crate) usage: Usage,
}

/// The receiving direction of a stream.
pub(crate) struct Receiver {
    pub(crate) direction: Direction,
    pub(crate) window: Window,
    pub(crate) buffer: RecvBuffer,
    /// An upper bound on the memory, in bytes, of what its reader took; counted while the peer's
    /// credit is the initial one.
    pub(crate) taken: usize,
    /// A message is incomplete.
    pub(crate) partial: bool,
    /// A Readable event is queued.
    pub(crate) readable: bool,
    /// A WINDOW frame is due.
    pub(crate) window_due: bool,
}

impl Stream {
    pub(crate) fn new(class: Class, by_peer: bool, credit: Credit, window: Window) -> Self {
        let sender = Sender::new(credit);
        let receiver = Receiver::new(window);
        Self { class, by_peer, live: true, sender, receiver }
    }

    /// The memory of the stream, in bytes, with what its reader took.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.receiver.buffer.memory() + self.receiver.taken
    }

    /// Tells whether both directions have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.sender.direction != Direction::Open && self.receiver.direction != Direction::Open
    }
}

impl Sender {
    fn new(credit: Credit) -> Self {
        Self {
            direction: Direction::Open,
            credit,
            partial: false,
            wait: Wait::No,
            usage: Usage::default(),
        }
    }

    /// Refuses to send when the direction has ended, or the connection is closed.
    pub(crate) fn check(&self, closed: bool) -> Result<(), StreamError> {
        match self.direction {
            Direction::Reset(code) => Err(StreamError::Reset(code)),
            Direction::Finished => Err(StreamError::Finished),
            Direction::Open if closed => Err(StreamError::Closed),
            Direction::Open => Ok(()),
        }
    }
}

impl Receiver {
    fn new(window: Window) -> Self {
        Self {
            direction: Direction::Open,
            window,
            buffer: RecvBuffer::default(),
            taken: 0,
            partial: false,
            readable: false,
            window_due: false,
        }
    }

    /// Called when all received data was read; returns whether the direction has ended.
    pub(crate) fn has_ended(&self, closed: bool) -> Result<bool, StreamError> {
        match self.direction {
            Direction::Finished => Ok(true),
            _ if closed => Err(StreamError::Closed),
            _ => Ok(false),
        }
    }
}
