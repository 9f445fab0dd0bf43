//! The file of a listener's queue.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::page::{Atomics, Page};
use crate::queue::Words;
use crate::sealed::OpenError;

// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Atomics for Words {}

/// The queue of a listener, mapped as long as this is not dropped.
pub struct Queue(Page<Words>);

impl Queue {
    /// Makes the file, which is handed to clients. The queue is closed.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        Page::create("levada-queue").map(|(file, page)| (file, Self(page)))
    }

    /// Maps the file of another process.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        Page::open(file).map(Self)
    }
}

impl std::ops::Deref for Queue {
    type Target = Words;

    fn deref(&self) -> &Words {
        self.0.get()
    }
}
