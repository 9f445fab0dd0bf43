//! What goes wrong with connections and streams.

use levada_core::Identity;
use thiserror::Error;

/// Why a connection could not be made, or ended.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum SessionError {
    /// The transport failed: the peer is away or the network is.
    #[error("the transport failed: {0}")]
    Transport(String),
    /// The peer presented another key than the expected one. Nothing of ours was sent.
    #[error("the other side is {presented}, not {expected}")]
    WrongPeer {
        /// Whom we wanted to reach.
        expected: Identity,
        /// Whose key was presented.
        presented: Identity,
    },
    /// The peer closed the connection and said why.
    #[error("closed by the other side: {reason}")]
    ClosedByPeer {
        /// The peer's code, see [`crate::Connection::close`].
        code: u64,
        /// One line for a person.
        reason: String,
    },
    /// We closed it.
    #[error("the connection is closed")]
    Closed,
    /// The peer broke the protocol, fell silent, or cut the connection.
    #[error("{0}")]
    Channel(#[from] levada_channel::Error),
}

/// Why a stream ended early.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The other side gave the stream up, with this code.
    #[error("the other side ended the stream (code {0})")]
    Reset(u64),
    /// The whole connection ended.
    #[error("{0}")]
    Connection(#[from] SessionError),
    /// A message longer than the caller takes.
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    /// Sending after the end, or on a stream that this side gave up.
    #[error("the stream has ended on this side")]
    Finished,
}
