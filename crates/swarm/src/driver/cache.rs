//! The chunks in the memory of a mediating coordinator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::content::{ChunkHash, ContentError, Source};

/// What the coordinator's state machine has put into its cache, and the hash tree of the source.
pub(super) struct ChunkCache {
    pub(super) source: Arc<Source>,
    chunks: Mutex<HashMap<u32, Bytes>>,
}

impl ChunkCache {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self { source, chunks: Mutex::default() }
    }

    pub(super) fn read(
        &self,
        index: u32,
        levels: u8,
    ) -> Result<(Vec<ChunkHash>, Bytes), ContentError> {
        let missing = || ContentError::Missing(index);
        let siblings = self.source.siblings(index, levels).ok_or_else(missing)?;
        let bytes = self.lock().get(&index).cloned().ok_or_else(missing)?;
        Ok((siblings, bytes))
    }

    pub(super) fn insert(&self, index: u32, bytes: Bytes) {
        self.lock().insert(index, bytes);
    }

    pub(super) fn remove(&self, index: u32) {
        self.lock().remove(&index);
    }

    /// A panic while the lock was held has not changed an invariant: there is none between the chunks.
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Bytes>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
