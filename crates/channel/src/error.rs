//! What can go wrong with a connection or with one of its streams.

use levada_core::Identity;
use thiserror::Error;

/// Why a connection ended, or refused a call.
///
/// All but [`Error::TooManyStreams`] and [`Error::NotConnected`] end the connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The server proved another key than the one expected. Nothing of the client was sent.
    #[error("the peer is {presented}, not {expected}")]
    WrongPeer {
        /// Whom the client wanted to reach.
        expected: Identity,
        /// Who answered.
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
    /// The peer asked for more work than the protocol allows it to.
    #[error("the peer floods this side: {0}")]
    Flood(&'static str),
    /// Both sides speak no version in common.
    #[error(
        "the peer speaks versions {min} to {max} of the protocol, none of which this side does"
    )]
    Version {
        /// The lowest version of the peer.
        min: u64,
        /// The highest version of the peer.
        max: u64,
    },
    /// The transport ended without an authenticated close.
    #[error("the connection was cut")]
    Truncated,
    /// Nothing was heard of the peer for the idle time.
    #[error("the peer fell silent")]
    Idle,
    /// As many streams as the peer allows are open already; the connection goes on.
    #[error("too many streams are open")]
    TooManyStreams,
    /// Not before [`crate::Event::Connected`]; the connection goes on.
    #[error("the connection is not established yet")]
    NotConnected,
    /// The connection was closed, by either side.
    #[error("the connection is closed")]
    Closed,
    /// The local cryptographic library refused; never caused by the peer.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// Why a call on a stream was refused; the connection goes on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum StreamError {
    /// Either side aborted the stream, with this code.
    #[error("the stream was reset (code {0})")]
    Reset(u64),
    /// No such stream.
    #[error("no such stream")]
    Unknown,
    /// This side said that it has no more messages.
    #[error("the stream is finished")]
    Finished,
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
}

/// The name of a TLS alert (RFC 8446 appendix B.2), for a person to read.
fn alert_name(code: u8) -> String {
    let name = rustls::AlertDescription::from(code);
    name.as_str().map_or_else(|| code.to_string(), str::to_owned)
}
