//! What carries a peer's operations: a channel with its streams, or a session with middleboxes, which has one operation.

use levada_contexts::PathSession;
use levada_core::wire::Reason;
use levada_core::{Framing, Identity};
use levada_session::{Connection, SessionError};

/// A connection of a peer.
#[derive(Clone)]
pub(crate) enum Carrier {
    /// A channel.
    Channel(Connection),
    /// A session with middleboxes.
    Path(PathSession),
}

impl Carrier {
    pub(crate) fn peer(&self) -> Identity {
        match self {
            Self::Channel(connection) => connection.peer(),
            Self::Path(session) => session.peer(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Channel(connection) => connection.is_open(),
            Self::Path(session) => session.is_open(),
        }
    }

    /// Waits for the end.
    pub(crate) async fn closed(&self) {
        match self {
            Self::Channel(connection) => {
                connection.closed().await;
            }
            Self::Path(session) => session.closed().await,
        }
    }

    /// How this side frames what it sends; contexts have no block length.
    pub(crate) fn framing(&self) -> Framing {
        match self {
            Self::Channel(connection) => connection.framing(),
            Self::Path(_) => Framing::Auto,
        }
    }

    /// Keying material that only the endpoints share.
    pub(crate) fn export<const N: usize>(&self, label: &str) -> Result<[u8; N], SessionError> {
        match self {
            Self::Channel(connection) => connection.export(label),
            Self::Path(session) => session.export(label).map_err(|_| SessionError::Closed),
        }
    }

    /// Lifts the limits on a peer that has proved a right. A session with middleboxes has no credit: its limits on unread data are fixed.
    pub(crate) fn raise_credit(&self) {
        match self {
            Self::Channel(connection) => connection.raise_credit(),
            Self::Path(session) => session.leave_budget(),
        }
    }

    /// Whether its memory counts against the budget of peers without a right.
    pub(crate) fn is_bounded(&self) -> bool {
        match self {
            Self::Channel(connection) => connection.is_bounded(),
            Self::Path(session) => session.is_bounded(),
        }
    }

    /// Closes it with a reason, which the peer is told.
    pub(crate) fn close(&self, reason: Reason, text: &str) {
        match self {
            Self::Channel(connection) => connection.close(reason.close_code(), text),
            Self::Path(session) => {
                // It may have ended already.
                let _ = session.abort(text.as_bytes());
                let _ = session.close();
            }
        }
    }
}
