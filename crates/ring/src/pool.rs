//! The segments of the connections of a client to a listener, in one file.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::layout::{HEADER, SEGMENT_LENGTH, SMALL};
use crate::leaked::Leaked;
use crate::mapping::Start;
use crate::queue::{Queue, SEGMENTS};
use crate::sealed::{self, OpenError};

/// The page of the [`Queue`], before the segments.
const FIRST: u64 = 4096;
/// The length of the file, in bytes. It is sparse: the pages of a segment are allocated when it is
/// first used.
const LENGTH: u64 = FIRST + SEGMENTS as u64 * SEGMENT_LENGTH;
const _: () = assert!(SEGMENT_LENGTH.is_multiple_of(4096) && SEGMENTS <= 1 << u8::BITS);
const _: () = assert!(size_of::<Queue>() <= FIRST as usize);

/// A mapped pool. It stays mapped until [`unmap`](Self::unmap).
pub struct Pool(AtomicPtr<u8>);

impl Pool {
    /// Makes the file, with the page of the queue only.
    ///
    /// # Errors
    /// Those of memfd_create(2) and fallocate(2), and `FBIG` if the process may not have files of
    /// this length.
    pub fn create() -> Result<OwnedFd, Errno> {
        sealed::create("levada-pool", LENGTH, FIRST)
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
        Ok(Self(AtomicPtr::new(NonNull::new(start.cast()).ok_or(Errno::NOMEM)?.as_ptr())))
    }

    /// Becomes another pool, after [`unmap`](Self::unmap).
    pub fn replace(&self, other: Self) {
        self.0.store(other.0.into_inner(), Ordering::Release);
    }

    #[allow(unsafe_code)]
    fn start(&self) -> NonNull<u8> {
        // SAFETY: it is the address of a mapping, which is not null.
        unsafe { NonNull::new_unchecked(self.0.load(Ordering::Acquire)) }
    }

    /// The connections that wait.
    #[allow(unsafe_code)]
    pub fn queue(&self) -> &Queue {
        // SAFETY: the mapping begins with these words, is aligned to a page, and stays as long as
        // this is used; every pattern of bits is valid for atomics.
        unsafe { self.start().cast().as_ref() }
    }

    /// The segment with this number, modulo [`SEGMENTS`]. It is mapped as long as the pool is.
    #[allow(unsafe_code)]
    pub fn segment(&self, number: u8) -> Leaked {
        let place = usize::from(number) % SEGMENTS;
        let offset = FIRST as usize + place * SEGMENT_LENGTH as usize;
        // SAFETY: the offset is within the mapping.
        Leaked(Start(unsafe { self.start().add(offset) }))
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
        let _ = unsafe { munmap(self.start().as_ptr().cast(), LENGTH as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_processes_find_the_same_words_and_no_segment_has_those_of_the_queue() {
        let file = Pool::create().unwrap();
        let [one, other] = [(); 2].map(|()| Pool::open(&file).unwrap());
        let last = SEGMENTS as u8 - 1;
        let generations = [0, last].map(|number| {
            one.allocate(number).unwrap();
            one.segment(number).begin()
        });
        one.queue().push((last, generations[1]), 0);
        let waiting = other.queue().first(|_| true).unwrap();
        assert_eq!((waiting.segment, other.queue().made()), (last, 1));
        for (number, generation) in [0, last].into_iter().zip(generations) {
            assert_eq!(other.segment(number).ends().generation(), generation);
            one.segment(number).ends().set_address(7, true);
        }
        assert!(one.queue().undo(waiting) && !other.queue().take(waiting, 0));
    }
}
