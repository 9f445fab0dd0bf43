//! The chunks in the memory of a mediating coordinator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::stored::Stored;
use crate::PeerId;
use crate::content::{ContentError, Source};

/// What the coordinator's state machine has put into its cache, and the hash tree of the source.
pub(super) struct ChunkCache {
    pub(super) source: Arc<Source>,
    /// Each with the peer whose copy it is.
    chunks: Mutex<HashMap<u32, (PeerId, Bytes)>>,
}

impl ChunkCache {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source, chunks: Mutex::default() }
    }

    pub(super) fn read(&self, index: u32, levels: u8) -> Result<Stored, ContentError> {
        let missing = || ContentError::Missing(index);
        let siblings = self.source.siblings(index, levels).ok_or_else(missing)?;
        let (provider, bytes) = self.lock().get(&index).cloned().ok_or_else(missing)?;
        Ok(Stored { provider, siblings, bytes })
    }

    /// `provider`: the coordinator for what was read from the source.
    pub(super) fn insert(&self, index: u32, provider: PeerId, bytes: Bytes) {
        self.lock().insert(index, (provider, bytes));
    }

    pub(super) fn remove(&self, index: u32) {
        self.lock().remove(&index);
    }

    /// A panic while the lock was held has not changed an invariant: there is none between the
    /// chunks.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, (PeerId, Bytes)>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
