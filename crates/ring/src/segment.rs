//! The file that two processes share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::Errno;

use crate::atomic::Ordering;
use crate::layout::{HEADER, SEGMENT_LENGTH, SMALL};
use crate::mapping::{Half, Mapping};
use crate::{Consumer, Producer};

/// "lvring" and the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"lvring\0\x01");
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Which end of the connection this process is: it decides which ring it writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end that connected.
    Connector,
    /// The end that accepted.
    Acceptor,
}

impl Side {
    /// The two ends of a process, by the halves of the directions 0 and 1.
    pub(crate) fn ends(self, half: impl Fn(usize) -> Half) -> (Producer<Half>, Consumer<Half>) {
        let own = match self {
            Self::Connector => 0,
            Self::Acceptor => 1,
        };
        (Producer::new(half(own)), Consumer::new(half(1 - own)))
    }
}

/// Two rings in one sealed file.
pub struct Segment {
    pub(crate) mapping: Arc<Mapping>,
}

/// Why a descriptor is not a segment.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its length, its seals or its first bytes are not those of a segment.
    #[error("the descriptor is no segment of this version: {0}")]
    NotASegment(&'static str),
    /// A system call failed.
    #[error("the segment cannot be mapped: {0}")]
    System(#[from] Errno),
}

impl Segment {
    /// Makes a segment, and its file, which is handed to the two ends. The pages of both small rings are allocated, 132 KiB
    /// with the header, so that writing to them cannot fail for want of memory.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        let file = memfd_create("levada-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SEGMENT_LENGTH)?;
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, HEADER + 2 * SMALL)?;
        // Neither end can make the file shorter, which would end the other one by SIGBUS.
        fcntl_add_seals(&file, SEALS)?;
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
        if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(OpenError::NotASegment("its length is not sealed"));
        }
        if u64::try_from(fstat(file)?.st_size) != Ok(SEGMENT_LENGTH) {
            return Err(OpenError::NotASegment("another length"));
        }
        let mapping = Mapping::new(file)?;
        if mapping.0.magic().load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NotASegment("other first bytes"));
        }
        Ok(Self { mapping: Arc::new(mapping) })
    }

    /// The two ends of this process. Each side may be taken once only: two producers of one ring would overwrite each
    /// other's bytes.
    pub fn ends(&self, side: Side) -> (Producer<Half>, Consumer<Half>) {
        side.ends(|direction| self.half(direction))
    }

    pub(crate) fn half(&self, direction: usize) -> Half {
        Half { start: self.mapping.0, direction, _mapping: Some(Arc::clone(&self.mapping)) }
    }
}
