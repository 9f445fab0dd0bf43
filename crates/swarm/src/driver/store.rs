//! Where chunks are read and written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::ChunkCache;
use super::stored::Stored;
use crate::PeerId;
use crate::content::{BadChunk, ContentError, PartialFile, Source, chunk_hash};
use crate::message::ChunkHeader;

/// The chunks of one party. Its functions block.
#[derive(Clone)]
pub(super) enum Store {
    /// Of a coordinator in direct mode.
    Source(Arc<Source>),
    /// Of a coordinator in mediated mode.
    Cache(Arc<ChunkCache>),
    /// Of a peer.
    Partial(Arc<Mutex<PartialFile>>),
}

impl Store {
    /// Whether reading does not wait for a disk.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    pub(super) fn read(&self, index: u32, levels: u8) -> Result<Stored, ContentError> {
        let (siblings, bytes) = match self {
            Self::Cache(cache) => return cache.read(index, levels),
            Self::Source(source) => source.read(index, levels)?,
            Self::Partial(partial) => lock(partial).read(index, levels)?,
        };
        Ok(Stored { provider: PeerId::COORDINATOR, siblings, bytes: bytes.into() })
    }

    /// Verifies a chunk that has come, and stores it at a peer. A coordinator's cache gets it
    /// later, if the state machine says so.
    pub(super) fn write(&self, header: &ChunkHeader, bytes: &[u8]) -> Result<(), ContentError> {
        let index = header.index;
        match self {
            Self::Source(_) => Ok(()),
            Self::Cache(cache) if cache.source.has(index, bytes) => Ok(()),
            Self::Cache(_) => Err(BadChunk.into()),
            Self::Partial(partial) => {
                let geometry = lock(partial).geometry();
                // Without the lock, because it takes most of the time.
                let hash = chunk_hash(geometry, index, bytes).ok_or(BadChunk)?;
                lock(partial).write(index, hash, &header.siblings, bytes)
            }
        }
    }
}

/// A panic while the lock was held has not changed the file's invariants: each step is recorded
/// after it was done.
pub(super) fn lock(partial: &Mutex<PartialFile>) -> MutexGuard<'_, PartialFile> {
    partial.lock().unwrap_or_else(PoisonError::into_inner)
}
