//! Stores in known.db what operations have shown about nodes and capabilities. An error is logged,
//! and the operation succeeds.

use levada_capability::Capability;
use levada_core::{Identity, UnixTime};

use super::{Client, ClientError};
use levada_home::known::{Known, SeenCapability};

impl Client {
    /// Stores in known.db, for `id rotate`, that the capability exists, without its secret. An
    /// error of the database is logged, and the capability stays usable.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the runtime is shutting down.
    pub async fn remember(&self, capability: &Capability) -> Result<(), ClientError> {
        let seen = SeenCapability::from(capability);
        let now = self.now();
        self.with_known(move |known| {
            remember_capability(known, &seen, now);
            Ok::<_, ClientError>(())
        })
        .await
    }
}

/// Stores that the capability exists.
pub(super) fn remember_capability(known: &Known, seen: &SeenCapability, now: UnixTime) {
    if let Err(error) = known.remember_capability(seen, now) {
        tracing::warn!(%error, "could not store the capability in known.db");
    }
}

/// Stores in the pin of `node` that it was reached at `address`.
pub(super) fn remember_address(known: &Known, node: &Identity, address: &str, now: UnixTime) {
    if let Err(error) = known.note_success(node, address, now) {
        tracing::warn!(%error, "could not store the address of a node in known.db");
    }
}

/// Stores the version that `node` speaks, which is known with its first answer.
pub(super) fn remember_version(known: &Known, node: &Identity, version: u32) {
    if let Err(error) = known.note_version(node, version) {
        tracing::debug!(%error, "could not store the version of a node in known.db");
    }
}
