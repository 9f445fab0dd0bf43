//! The distribution: each chunk is read from the source, and given to its providers.

use crate::bitmap::Bitmap;

/// The progress of the distribution.
pub(super) struct Distribution {
    /// The next chunk that providers are chosen for, once the distribution has started.
    pub(super) placed: Option<u32>,
    /// Chunks that were read from the source.
    pub(super) read: Bitmap,
    /// Chunks that could not be.
    pub(super) unreadable: Bitmap,
    /// All chunks before it were read, or need not be.
    first_unread: u32,
    /// Chunks that have left at least once.
    left: Bitmap,
}

impl Distribution {
    /// For a content of `chunks`.
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            placed: None,
            read: Bitmap::new(chunks),
            unreadable: Bitmap::new(chunks),
            first_unread: 0,
            left: Bitmap::new(chunks),
        }
    }

    pub(super) fn has_started(&self) -> bool {
        self.placed.is_some()
    }

    /// Returns true once providers were chosen for all chunks.
    pub(super) fn is_placed(&self) -> bool {
        self.placed.is_some_and(|placed| placed >= self.left.length())
    }

    /// A chunk has left. True if it was the last one of which no copy had left.
    pub(super) fn chunk_left(&mut self, index: u32) -> bool {
        self.left.insert(index) && self.left.is_full()
    }

    /// Returns true if a chunk that `is_promised` to a provider was not read yet.
    pub(super) fn has_unread(&mut self, is_promised: impl Fn(u32) -> bool) -> bool {
        let chunks = self.read.length();
        let is_unread = |index: &u32| !self.read.contains(*index) && is_promised(*index);
        let unread = (self.first_unread..chunks).find(is_unread);
        self.first_unread = unread.unwrap_or(chunks);
        unread.is_some()
    }
}
