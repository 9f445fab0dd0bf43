//! Chunks that no neighbour had when they came.

use std::collections::VecDeque;

use crate::bitmap::Bitmap;

/// The chunks, in the order in which they came, each once.
pub(super) struct Fresh {
    order: VecDeque<u32>,
    members: Bitmap,
}

impl Fresh {
    /// For a content of `chunks`.
    pub(super) fn new(chunks: u32) -> Self {
        Self { order: VecDeque::new(), members: Bitmap::new(chunks) }
    }

    pub(super) fn push(&mut self, index: u32) {
        if self.members.insert(index) {
            self.order.push_back(index);
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.order.front().copied()
    }

    /// Removes the first one.
    pub(super) fn pop(&mut self) {
        if let Some(index) = self.order.pop_front() {
            self.members.remove(index);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().copied()
    }
}
