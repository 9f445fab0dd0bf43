//! One page of memory that processes share, made of atomics: any process that has it can write
//! anything, and harms no other by that.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::sealed::{self, OpenError};

/// Its length, in bytes.
pub(crate) const LENGTH: u64 = 4096;

/// A type that a page can hold.
///
/// # Safety
/// It consists of atomics only, and is not longer than a page.
#[allow(unsafe_code)]
pub(crate) unsafe trait Atomics: Sync {}

/// A page, mapped as long as this is not dropped.
pub(crate) struct Page<T>(NonNull<T>, PhantomData<T>);

// SAFETY: the mapping is at the same address in every thread, and is reached by atomics only.
#[allow(unsafe_code)]
unsafe impl<T: Atomics> Send for Page<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Atomics> Sync for Page<T> {}

impl<T: Atomics> Page<T> {
    /// Makes the file, and allocates its page: all bits are 0.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub(crate) fn create(name: &str) -> Result<(OwnedFd, Self), Errno> {
        let file = sealed::create(name, LENGTH, LENGTH)?;
        let page = Self::map(&file)?;
        Ok((file, page))
    }

    /// Maps the file of another process.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    pub(crate) fn open(file: impl AsFd) -> Result<Self, OpenError> {
        sealed::check(&file, LENGTH)?;
        Ok(Self::map(file)?)
    }

    #[allow(unsafe_code)]
    fn map(file: impl AsFd) -> Result<Self, Errno> {
        const { assert!(size_of::<T>() <= LENGTH as usize) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other; the file
        // has this length, and is sealed.
        let start = unsafe {
            mmap(std::ptr::null_mut(), LENGTH as usize, protection, MapFlags::SHARED, file, 0)?
        };
        NonNull::new(start.cast()).map(|start| Self(start, PhantomData)).ok_or(Errno::NOMEM)
    }

    /// What it holds.
    #[allow(unsafe_code)]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the mapping is page-aligned, at least as long as `T`, and there as long as
        // `self`; every pattern of bits is valid for atomics.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Page<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference to it outlives
        // `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LENGTH as usize) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;
    use crate::atomic::{AtomicU64, Ordering};

    #[repr(C)]
    struct Word(AtomicU64);

    // SAFETY: one atomic.
    #[allow(unsafe_code)]
    unsafe impl Atomics for Word {}

    #[test]
    fn what_one_process_writes_another_sees() {
        let (file, own) = Page::<Word>::create("levada-test").unwrap();
        let other = Page::<Word>::open(&file).unwrap();
        assert_eq!(own.get().0.load(Ordering::Relaxed), 0);
        other.get().0.store(7, Ordering::Relaxed);
        assert_eq!(own.get().0.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn files_that_could_become_shorter_are_refused() {
        let file = memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, LENGTH).unwrap();
        assert!(matches!(Page::<Word>::open(&file), Err(OpenError::NotASegment(_))));
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        assert!(Page::<Word>::open(&file).is_ok());
        let (segment, _) = crate::Segment::create().unwrap();
        assert!(matches!(Page::<Word>::open(&segment), Err(OpenError::NotASegment(_))));
    }
}
