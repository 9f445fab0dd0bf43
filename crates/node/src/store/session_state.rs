//! The states of sessions.

use std::fmt;
use std::str::FromStr;

use rusqlite::Row;
use thiserror::Error;

use super::row;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Not started yet.
    Requested,
    /// Started at least once.
    Started,
    /// Ended by a holder or the node.
    Terminated,
    /// Its first link was revoked.
    Revoked,
    /// It expired before it was started.
    Expired,
}

impl SessionState {
    const ALL: [Self; 5] =
        [Self::Requested, Self::Started, Self::Terminated, Self::Revoked, Self::Expired];

    /// One lower-case word, as in the database and in `--json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Started => "started",
            Self::Terminated => "terminated",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }

    /// Returns true if the session has ended, so that it cannot start again.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Requested | Self::Started)
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is not the name of a state.
#[derive(Debug, Error)]
#[error("not the state of a session")]
struct StateError;

pub(super) fn state(row: &Row) -> rusqlite::Result<SessionState> {
    row::parsed::<Stored>(row, "state").map(|stored| stored.0)
}

/// Implements `FromStr` for a state outside the public API.
struct Stored(SessionState);

impl FromStr for Stored {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        let mut all = SessionState::ALL.into_iter();
        all.find(|state| state.as_str() == text).map(Self).ok_or(StateError)
    }
}
