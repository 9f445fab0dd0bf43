//! The segments that two processes share for their connections, in one file.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::fcntl_add_seals;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::layout::{HEADER, SEGMENT_LENGTH, SMALL};
use crate::leaked::Leaked;
use crate::mapping::Start;
use crate::sealed::{self, OpenError, SEALS};

/// Segments of a pool: connections between two processes at a time. More go by the kernel.
pub const SEGMENTS: usize = 128;
/// The length of the file, in bytes. It is sparse: the pages of a segment are allocated when it is
/// first used.
const LENGTH: u64 = SEGMENTS as u64 * SEGMENT_LENGTH;
const _: () = assert!(SEGMENT_LENGTH.is_multiple_of(4096) && SEGMENTS <= 1 << u8::BITS);

/// A mapped pool. It stays mapped until [`unmap`](Self::unmap).
pub struct Pool(NonNull<u8>);

// SAFETY: the mapping is at the same address in every thread, and is reached as segments are.
#[allow(unsafe_code)]
unsafe impl Send for Pool {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes the file, without pages.
    ///
    /// # Errors
    /// Those of memfd_create(2), and `FBIG` if the process may not have files of this length.
    pub fn create() -> Result<OwnedFd, Errno> {
        let file = sealed::unsealed("levada-pool", LENGTH)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(file)
    }

    /// Maps the file.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    #[allow(unsafe_code)]
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        sealed::check(&file, LENGTH)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length,
        // and is sealed.
        let start =
            unsafe { mmap(std::ptr::null_mut(), LENGTH as usize, protection, flags, file, 0)? };
        Ok(Self(NonNull::new(start.cast()).ok_or(Errno::NOMEM)?))
    }

    /// The segment with this number, modulo [`SEGMENTS`]. It is mapped as long as the pool is.
    #[allow(unsafe_code)]
    pub fn segment(&self, number: u8) -> Leaked {
        let offset = (usize::from(number) % SEGMENTS) * SEGMENT_LENGTH as usize;
        // SAFETY: the offset is within the mapping.
        Leaked(Start(unsafe { self.0.add(offset) }))
    }

    /// Allocates the pages of a segment's header and small rings.
    ///
    /// # Errors
    /// `NOMEM` if there is no memory, `INVAL` before Linux 5.14.
    #[allow(unsafe_code)]
    pub fn allocate(&self, number: u8) -> Result<(), Errno> {
        let start = self.segment(number).into_address();
        let length = (HEADER + 2 * SMALL) as usize;
        // SAFETY: the range is the start of a segment of this mapping; allocating its pages changes
        // no bytes.
        unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxPopulateWrite) }
    }

    /// Removes the mapping from this process.
    ///
    /// # Safety
    /// No segment of the pool is used any more in this process, nor is this.
    #[allow(unsafe_code)]
    pub unsafe fn unmap(&self) {
        // SAFETY: the mapping was made by `open` with this length; the caller promises the rest.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LENGTH as usize) };
    }
}
