//! Errors of connections and of their streams.

use levada_core::Identity;
use thiserror::Error;

/// Why a connection ended, or refused a call.
///
/// All but [`Error::TooManyStreams`] and [`Error::NotConnected`] end the connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The server proved another key than the expected one. The client had not sent its identity.
    #[error("the peer is {presented}, not {expected}")]
    WrongPeer {
        /// The identity that the client expected.
        expected: Identity,
        /// The identity that the server proved.
        presented: Identity,
    },
    /// The TLS handshake failed.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The peer took too long to complete the handshake.
    #[error("the peer did not complete the handshake in time")]
    HandshakeTimeout,
    /// The peer ended the connection with this alert (RFC 8446 section 6).
    #[error("the peer ended the connection: TLS alert {}", alert_name(*.0))]
    Alert(u8),
    /// A record failed authentication: altered, reordered, repeated or left out.
    #[error("a record failed authentication")]
    Forged,
    /// A record or a TLS message of the wrong form.
    #[error("the peer sent a malformed record: {0}")]
    Record(&'static str),
    /// A frame of the wrong form, or out of place.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The peer exceeded a limit on what it may make this side do.
    #[error("the peer exceeded a limit of the protocol: {0}")]
    Flood(&'static str),
    /// The two sides have no version in common.
    #[error(
        "the peer speaks versions {min} to {max} of the protocol, and this side speaks none of them"
    )]
    Version {
        /// The lowest version of the peer.
        min: u64,
        /// The highest version of the peer.
        max: u64,
    },
    /// The transport ended without an authenticated close.
    #[error("the connection was cut without a close")]
    Truncated,
    /// Nothing was received for [`crate::Options::idle_timeout`].
    #[error("the connection timed out: the peer sent nothing")]
    Idle,
    /// The peer's limit on open streams is reached; the connection stays open.
    #[error("too many streams are open")]
    TooManyStreams,
    /// The call needs [`crate::Event::Connected`] first; the connection stays open.
    #[error("the connection is not established yet")]
    NotConnected,
    /// The connection was closed, by either side.
    #[error("the connection is closed")]
    Closed,
    /// The local TLS or cryptographic library failed; never caused by the peer.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// Why a call on a stream was refused; the connection stays open.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum StreamError {
    /// Either side aborted the stream, with this code.
    #[error("the stream was reset (code {0})")]
    Reset(u64),
    /// No such stream.
    #[error("no such stream")]
    Unknown,
    /// This side finished its direction.
    #[error("the stream is finished")]
    Finished,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// The name of a TLS alert (RFC 8446 appendix B.2), for messages.
fn alert_name(code: u8) -> String {
    let name = rustls::AlertDescription::from(code);
    name.as_str().map_or_else(|| code.to_string(), str::to_owned)
}
