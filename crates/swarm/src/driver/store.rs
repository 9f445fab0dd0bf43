//! Where chunks are read and written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::content::{ChunkHash, ContentError, PartialFile, Source, chunk_hash};
use crate::message::ChunkHeader;

/// The chunks of one party. Its functions block.
#[derive(Clone)]
pub(super) enum Store {
    Source(Arc<Source>),
    Partial(Arc<Mutex<PartialFile>>),
}

impl Store {
    pub(super) fn read(
        &self,
        index: u32,
        levels: u8,
    ) -> Result<(Vec<ChunkHash>, Vec<u8>), ContentError> {
        match self {
            Self::Source(source) => source.read(index, levels),
            Self::Partial(partial) => lock(partial).read(index, levels),
        }
    }

    /// Verifies and stores a chunk. A source stores none.
    pub(super) fn write(&self, header: &ChunkHeader, bytes: &[u8]) -> Result<(), ContentError> {
        let Self::Partial(partial) = self else { return Ok(()) };
        let geometry = lock(partial).geometry();
        // Without the lock, because it takes most of the time.
        let hash = chunk_hash(geometry, header.index, bytes);
        lock(partial).write(header.index, hash, &header.siblings, bytes)
    }
}

/// A panic while the lock was held has not changed the file's invariants: each step is recorded after it was done.
pub(super) fn lock(partial: &Mutex<PartialFile>) -> MutexGuard<'_, PartialFile> {
    partial.lock().unwrap_or_else(PoisonError::into_inner)
}
