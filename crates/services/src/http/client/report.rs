//! Reports of the sessions of a local origin.

use std::sync::Arc;

use levada_contexts::Right;
use levada_core::Identity;

/// What a middlebox was granted, by both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedMiddlebox {
    /// Its identity.
    pub identity: Identity,
    /// The contexts that it may read or write.
    pub grants: Vec<(&'static str, Right)>,
}

/// What happened to a session.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    /// It was started.
    Opened {
        /// Numbers the sessions of this process, from 1.
        number: u64,
        /// Whether it resumed keys of an earlier one.
        resumed: bool,
        /// The middleboxes, the first next to this side.
        middleboxes: Vec<GrantedMiddlebox>,
    },
    /// It has ended.
    Ended {
        /// The number of the session.
        number: u64,
        /// Why; None if this side has ended it.
        error: Option<String>,
    },
}

/// Receives the events.
pub type Report = Arc<dyn Fn(SessionEvent) + Send + Sync>;
