//! Chunks as they are sent.

use bytes::Bytes;

use crate::PeerId;
use crate::content::ChunkHash;

/// A chunk to send.
pub(super) struct Stored {
    /// The peer whose copy it is; the coordinator if the receiver knows that by the link.
    pub(super) provider: PeerId,
    pub(super) siblings: Vec<ChunkHash>,
    pub(super) bytes: Bytes,
}
