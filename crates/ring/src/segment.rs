//! The file that two processes share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::atomic::Ordering;
use crate::layout::{HEADER, SEGMENT_LENGTH, SMALL};
use crate::mapping::{Half, Mapping, OwnedHalf};
use crate::sealed::{self, OpenError};
use crate::{Consumer, Producer, Side};

/// "lvring" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"lvring\0\x01");

/// Two rings in one sealed file.
pub struct Segment {
    pub(crate) mapping: Arc<Mapping>,
}

impl Segment {
    /// Makes a segment, and its file, which is handed to the two ends. The pages of both small
    /// rings are allocated, 132 KiB with the header, so that writing to them cannot fail for want
    /// of memory.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        let file = sealed::create("levada-ring", SEGMENT_LENGTH, HEADER + 2 * SMALL)?;
        let mapping = Mapping::new(file.as_fd())?;
        mapping.0.magic().store(MAGIC, Ordering::Release);
        Ok((file, Self { mapping: Arc::new(mapping) }))
    }

    /// Maps a segment that another process has made.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length or version.
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        let file = file.as_fd();
        sealed::check(file, SEGMENT_LENGTH)?;
        let mapping = Mapping::new(file)?;
        if mapping.0.magic().load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NotASegment("other first bytes"));
        }
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// The two ends of this process. Each side may be taken once only: two producers of one ring
    /// would overwrite each other's bytes.
    pub fn ends(&self, side: Side) -> (Producer<OwnedHalf>, Consumer<OwnedHalf>) {
        let own = side.outbound();
        (Producer::new(self.half(own)), Consumer::new(self.half(1 - own)))
    }

    pub(crate) fn half(&self, direction: usize) -> OwnedHalf {
        let half = Half { start: self.mapping.0, direction };
        OwnedHalf { half, _mapping: Arc::clone(&self.mapping) }
    }
}
