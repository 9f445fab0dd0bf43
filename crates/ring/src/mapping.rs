//! A segment in this process's memory. The only unsafe code of the crate: a mapping that another
//! process writes.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::control::Control;
use crate::ends::Ends;
use crate::layout::{LARGE, Region, SEGMENT_LENGTH};
use crate::memory::{Memory, RegionOf};
use crate::shared_copy::{copy_in, copy_out};

/// Where the shared words of each direction are.
const CONTROLS: [usize; 2] = [1024, 2048];
const _: () = assert!(size_of::<Control>() <= 1024 && align_of::<Control>() <= 1024);
/// The offset of the [`Ends`] of a segment in a pool.
const ENDS: usize = 3072;
const _: () = assert!(size_of::<Ends>() <= 1024 && align_of::<Ends>() <= 1024);

/// The whole segment, mapped for reading and writing, as long as this is not dropped.
pub(crate) struct Mapping(pub(crate) Start);

/// Where a segment is mapped. It says nothing about how long: see [`Half`].
#[derive(Clone, Copy)]
pub(crate) struct Start(pub(crate) NonNull<u8>);

// SAFETY: the mapping is at the same address in every thread, and all access to its bytes is by
// atomics or by the copies of `shared_copy`, which permit changes at the same time.
#[allow(unsafe_code)]
unsafe impl Send for Start {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Start {}

impl Mapping {
    /// Maps a file of [`SEGMENT_LENGTH`] bytes, which is sealed against shrinking.
    #[allow(unsafe_code)]
    pub(crate) fn new(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let length = usize::try_from(SEGMENT_LENGTH).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other. The caller
        // has checked the file's length and its seals, so every byte of the mapping stays backed.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        NonNull::new(start.cast()).map(|start| Self(Start(start))).ok_or(Errno::NOMEM)
    }
}

impl Start {
    /// The word at the start of the header that names format and version.
    #[allow(unsafe_code)]
    pub(crate) fn magic(&self) -> &crate::atomic::AtomicU64 {
        // SAFETY: the mapping is page-aligned and has more than eight bytes; it is there as long as
        // `self` is used.
        unsafe { self.0.cast().as_ref() }
    }

    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn control(&self, direction: usize) -> &Control {
        // SAFETY: the offset is within the header and a multiple of the alignment; `Control` has
        // only atomics, for which every pattern of bits is valid; the mapping is there as long as
        // `self` is used.
        unsafe { self.0.add(CONTROLS[direction]).cast().as_ref() }
    }

    /// The ends of the connections of a segment. They live as long as the mapping: the caller uses
    /// them no longer.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn ends<'a>(self) -> &'a Ends {
        // SAFETY: as for `control`.
        unsafe { self.0.add(ENDS).cast().as_ref() }
    }

    /// The address of a byte of a region. `offset` is at most the region's capacity.
    #[inline]
    #[allow(unsafe_code)]
    fn address(&self, direction: usize, region: Region, offset: u64) -> NonNull<u8> {
        let at = usize::try_from(region.offset(direction) + offset).unwrap_or(0);
        // SAFETY: by the layout every region ends within the mapping.
        unsafe { self.0.add(at) }
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no half of it outlives
        // `self`.
        let _ = unsafe { munmap(self.0.0.as_ptr().cast(), SEGMENT_LENGTH as usize) };
    }
}

/// One direction of a segment, which does not keep the segment mapped.
#[derive(Clone, Copy)]
pub struct Half {
    pub(crate) start: Start,
    pub(crate) direction: usize,
}

/// A [`Half`] that keeps the segment mapped.
#[derive(Clone)]
pub struct OwnedHalf {
    pub(crate) half: Half,
    pub(crate) _mapping: Arc<Mapping>,
}

impl Half {
    /// Allocates the pages of the large region, before a producer moves there.
    ///
    /// # Errors
    /// `NOMEM` if there is no memory, `INVAL` before Linux 5.14. The ring then stays as it is.
    #[allow(unsafe_code)]
    pub fn allocate_large(&self) -> Result<(), Errno> {
        let start = self.start.address(self.direction, Region::Large, 0);
        // SAFETY: the range is the large region of this mapping; allocating its pages changes no
        // bytes.
        unsafe { madvise(start.as_ptr().cast(), LARGE as usize, Advice::LinuxPopulateWrite) }
    }

    /// Gives the pages of the large region back, after both ends have left it.
    ///
    /// # Errors
    /// Those of madvise(2).
    #[allow(unsafe_code)]
    pub fn free_large(&self) -> Result<(), Errno> {
        let start = self.start.address(self.direction, Region::Large, 0);
        // SAFETY: the range is the large region of this mapping, and holds no bytes that are still
        // to be read; pages that are touched again read as zeros.
        unsafe { libc_remove(start, LARGE as usize) }
    }
}

/// madvise(MADV_REMOVE), which rustix does not offer.
///
/// # Safety
/// `start..start + length` is a shared mapping whose content is no longer needed.
#[allow(unsafe_code)]
unsafe fn libc_remove(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let length = NonZeroUsize::new(length).ok_or(Errno::INVAL)?;
    // SAFETY: as the caller promises.
    let code = unsafe { libc::madvise(start.as_ptr().cast(), length.get(), libc::MADV_REMOVE) };
    if code == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

impl Memory for Half {
    #[inline]
    fn control(&self) -> &Control {
        self.start.control(self.direction)
    }

    #[inline]
    #[allow(unsafe_code)]
    fn write(&self, RegionOf(region): RegionOf, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= region.capacity());
        // SAFETY: the destination is within the region, checked above; the source is a slice of
        // this process.
        unsafe { copy_in(self.start.address(self.direction, region, offset), bytes) }
    }

    #[inline]
    #[allow(unsafe_code)]
    fn read(&self, RegionOf(region): RegionOf, offset: u64, bytes: &mut [u8]) {
        assert!(offset + bytes.len() as u64 <= region.capacity());
        // SAFETY: as in `write`, the other way.
        unsafe { copy_out(self.start.address(self.direction, region, offset), bytes) }
    }
}

impl Memory for OwnedHalf {
    #[inline]
    fn control(&self) -> &Control {
        self.half.control()
    }

    #[inline]
    fn write(&self, region: RegionOf, offset: u64, bytes: &[u8]) {
        self.half.write(region, offset, bytes);
    }

    #[inline]
    fn read(&self, region: RegionOf, offset: u64, bytes: &mut [u8]) {
        self.half.read(region, offset, bytes);
    }
}
