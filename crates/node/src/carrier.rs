//! The carrier of a peer's operations: a channel with its streams, or a session with middleboxes,
//! which has one operation.

use std::future::Future;
use std::pin::Pin;

use levada_contexts::PathSession;
use levada_core::wire::Reason;
use levada_core::{Framing, Identity};
use levada_session::{Connection, SessionError};

/// A connection of a peer.
pub(crate) trait Carrier: Send + Sync {
    /// The peer, which has proved its key.
    fn peer(&self) -> Identity;

    fn is_open(&self) -> bool;

    /// Waits for the end.
    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The framing of what this side sends.
    fn framing(&self) -> Framing;

    /// Keying material that only the endpoints share.
    fn export(&self, label: &str) -> Result<[u8; 32], SessionError>;

    /// Lifts the limits on a peer that has proved a right.
    fn raise_credit(&self);

    /// Returns true while its memory counts against the budget of peers without a right.
    fn is_bounded(&self) -> bool;

    /// Closes it with a reason, which is sent to the peer.
    fn close(&self, reason: Reason, text: &str);

    /// The channel for further streams of a run; none if runs have one stream.
    fn channel(&self) -> Option<&Connection>;
}

impl Carrier for Connection {
    fn peer(&self) -> Identity {
        self.peer()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { drop(self.closed().await) })
    }

    fn framing(&self) -> Framing {
        self.framing()
    }

    fn export(&self, label: &str) -> Result<[u8; 32], SessionError> {
        self.export(label)
    }

    fn raise_credit(&self) {
        self.raise_credit();
    }

    fn is_bounded(&self) -> bool {
        self.is_bounded()
    }

    fn close(&self, reason: Reason, text: &str) {
        self.close(reason.close_code(), text);
    }

    fn channel(&self) -> Option<&Connection> {
        Some(self)
    }
}

impl Carrier for PathSession {
    fn peer(&self) -> Identity {
        self.peer()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.closed())
    }

    /// Contexts have no block length.
    fn framing(&self) -> Framing {
        Framing::Auto
    }

    fn export(&self, label: &str) -> Result<[u8; 32], SessionError> {
        self.export(label).map_err(|_| SessionError::Closed)
    }

    /// A session with middleboxes has no credit: its limits on unread data are fixed.
    fn raise_credit(&self) {
        self.leave_budget();
    }

    fn is_bounded(&self) -> bool {
        self.is_bounded()
    }

    fn close(&self, _: Reason, text: &str) {
        // It may have ended already.
        let _ = self.abort(text.as_bytes());
        let _ = self.close();
    }

    fn channel(&self) -> Option<&Connection> {
        None
    }
}
