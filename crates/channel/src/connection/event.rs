//! What a connection reports: events, and how it was closed.

use crate::StreamId;

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's identity is proved, and streams may be opened.
    Connected,
    /// The peer opened a stream.
    Opened(StreamId),
    /// The stream may have something to read: data, its end, or a reset.
    Readable(StreamId),
    /// The stream that refused a write may be written again.
    Writable(StreamId),
    /// The peer reset the stream; [`crate::Connection::reset_code`] returns its code. It comes once
    /// per stream, also if no read or write is waiting.
    Reset(StreamId),
    /// The connection was closed in good order. Streams still return what had arrived. No event
    /// follows for them, so tasks that wait for one must check again.
    Closed(Close),
}

/// Why a connection was closed, and by which side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// A number for programs; at most 2^62 - 1.
    pub code: u64,
    /// A line of text for users, at most 256 bytes; chosen by the peer if `by_peer`.
    pub reason: String,
    /// Whether the peer closed first.
    pub by_peer: bool,
}

impl Close {
    /// Closed in good order, without a reason.
    pub const DONE: u64 = 0;
    /// The other side broke the protocol.
    pub const PROTOCOL: u64 = 1;
    /// The other side exceeded a limit of the protocol.
    pub const FLOOD: u64 = 2;
    /// No version of the protocol in common. The layers above define the codes from
    /// [`levada_core::wire::FIRST_CLOSE_CODE`].
    pub const VERSION: u64 = 3;
}
