//! What a session with middleboxes reports.

use levada_core::Identity;

use crate::receiver::Received;

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The server is the expected one, and this side may send. At a server: the client is this one,
    /// every middlebox is there, and [`crate::PathConnection::start`] is due after the operation in
    /// context 0.
    Bound {
        /// The other endpoint.
        peer: Identity,
        /// TLS was resumed.
        resumed: bool,
    },
    /// At a client: the server and every middlebox are there.
    Ready,
    /// At a client that had as many requests without an answer as it may: it may begin another one.
    Writable,
    /// See [`Received`].
    Received(Received),
    /// The peer has closed, after everything was received.
    Closed,
}
