//! The memory that the rings of all processes of a user take, and may take.
//!
//! The monitor makes the page, and each process counts what it takes. What a process had that was
//! killed, the monitor takes off.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::atomic::{AtomicU64, Ordering};
use crate::page::{Atomics, Page};
use crate::sealed::OpenError;

#[repr(C)]
struct Amounts {
    /// Bytes that may be taken.
    limit: AtomicU64,
    /// Bytes that are.
    taken: AtomicU64,
}

// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Atomics for Amounts {}

/// The account of a user.
pub struct Account(Page<Amounts>);

impl Account {
    /// Makes the page, and its file, which is handed to processes. `limit` is in bytes.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create(limit: u64) -> Result<(OwnedFd, Self), Errno> {
        let (file, page) = Page::<Amounts>::create("levada-account")?;
        page.get().limit.store(limit, Ordering::Relaxed);
        Ok((file, Self(page)))
    }

    /// Maps the page of the monitor.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        Page::open(file).map(Self)
    }

    /// Takes memory. `false`, and nothing is taken, if that would be too much.
    pub fn take(&self, bytes: u64) -> bool {
        let amounts = self.0.get();
        let limit = amounts.limit.load(Ordering::Relaxed);
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= limit);
        amounts.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives memory back.
    pub fn give_back(&self, bytes: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(bytes));
        let _ = self.0.get().taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Says how much is taken in all, after a process has ended, and how much may be: a process can
    /// have written anything.
    pub fn set(&self, bytes: u64, limit: u64) {
        self.0.get().limit.store(limit, Ordering::Relaxed);
        self.0.get().taken.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        self.0.get().taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_the_limit() {
        let (file, monitor) = Account::create(100).unwrap();
        let process = Account::open(&file).unwrap();
        assert!(process.take(60) && !process.take(41) && process.take(40));
        assert!(!process.take(1) && !process.take(u64::MAX));
        assert_eq!(monitor.taken(), 100);
        process.give_back(30);
        assert!(process.take(30));
        // It was counted once more than it was taken.
        process.give_back(1000);
        assert_eq!(monitor.taken(), 0);
        monitor.set(99, 100);
        assert!(process.take(1) && !process.take(1));
    }
}
