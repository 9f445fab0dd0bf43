//! The groups that the node takes over from another one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use levada_core::{Digest, GroupSet, GroupSetError, UnixTime};
use tokio::sync::Notify;

/// The name of the set that is exported and taken over unless another one is named.
pub(crate) const DEFAULT_SET: &str = "default";

/// A set of groups that another node has signed, and that was taken.
#[derive(Clone)]
pub(crate) struct SharedSet {
    pub(crate) content: GroupSet,
    pub(crate) hash: Digest,
}

impl SharedSet {
    /// Reads a stored set, whose signer was checked when it was taken: its key may have been
    /// rotated since.
    ///
    /// # Errors
    /// [`GroupSetError`] if it is damaged.
    pub(crate) fn read(text: &str) -> Result<Self, GroupSetError> {
        let (content, _) = GroupSet::verify(text)?;
        Ok(Self { content, hash: GroupSet::hash(text) })
    }
}

/// The state of the exchange of groups with other nodes, for `status` and `doctor`.
#[derive(Default)]
pub(crate) struct GroupExchange {
    state: Mutex<ExchangeState>,
    /// Held while a set is signed, so that no two have the same version.
    pub(crate) signing: Mutex<()>,
    /// Notified when the other node is asked at once.
    pub(crate) refresh: Notify,
}

/// The outcomes of the last attempts.
#[derive(Clone, Default)]
pub(crate) struct ExchangeState {
    /// The last set that was refused since one was taken.
    pub(crate) refused: Option<RefusedSet>,
    /// The reason why the other node could not be asked last.
    pub(crate) unreachable: Option<String>,
}

/// A set of groups that was refused.
#[derive(Clone)]
pub(crate) struct RefusedSet {
    /// The time of the last attempt.
    pub(crate) time: UnixTime,
    /// The hash of its text.
    pub(crate) hash: Digest,
    /// The reason.
    pub(crate) text: String,
}

impl GroupExchange {
    pub(crate) fn state(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
