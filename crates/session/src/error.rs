//! Errors of connections and streams.

use levada_core::Identity;
use thiserror::Error;

/// Why a connection was not established, or ended.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum SessionError {
    /// The transport failed: the peer or the network is not reachable.
    #[error("the transport failed: {0}")]
    Transport(String),
    /// The peer presented another key than the expected one. This side's identity was not sent.
    #[error("the other side is {presented}, not {expected}")]
    WrongPeer {
        /// The identity that was expected.
        expected: Identity,
        /// The identity whose key was presented.
        presented: Identity,
    },
    /// The peer closed the connection with a code and a reason.
    #[error("closed by the other side: {reason}")]
    ClosedByPeer {
        /// The peer's code, see [`crate::Connection::close`].
        code: u64,
        /// One line of text for users.
        reason: String,
    },
    /// This side closed it.
    #[error("the connection is closed")]
    Closed,
    /// The peer broke the protocol, timed out, or cut the connection.
    #[error("{0}")]
    Channel(#[from] levada_channel::Error),
}

/// Why a stream ended early.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// A side reset the stream with this code.
    #[error("the other side ended the stream (code {0})")]
    Reset(u64),
    /// The whole connection ended.
    #[error("{0}")]
    Connection(#[from] SessionError),
    /// The message is longer than the caller's limit, in bytes.
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    /// This side has finished or dropped the stream.
    #[error("the stream has ended on this side")]
    Finished,
}
