//! The body of a response.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::events::EventStream;

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// In memory.
    Whole(Bytes),
    /// Consecutive parts in memory; some may be empty.
    Parts(Box<[Bytes; 3]>),
    /// The bytes of a file from an offset up to, and excluding, another.
    File(Arc<BodyFile>, u64, u64),
    /// A stream of events, which ends with the connection.
    #[doc(hidden)]
    Events(Box<EventStream>),
}

impl Body {
    /// A body of length 0.
    pub const fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// The length in bytes; `None` for a stream.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Parts(parts) => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Self::File(_, from, to) => Some(to.saturating_sub(*from)),
            Self::Events(_) => None,
        }
    }
}

/// An open file. A temporary file of the server also holds its part of the memory budget until the
/// last reference is dropped.
#[derive(Debug)]
pub struct BodyFile {
    file: File,
    _budget: Option<OwnedSemaphorePermit>,
}

impl BodyFile {
    /// A temporary file, which holds `budget` while it is open.
    pub(super) fn temporary(file: File, budget: OwnedSemaphorePermit) -> Self {
        Self { file, _budget: Some(budget) }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl From<File> for BodyFile {
    fn from(file: File) -> Self {
        Self { file, _budget: None }
    }
}

impl AsFd for BodyFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
