//! The records of this process, mapped for writing.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::fcntl_add_seals;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{HEADER, LENGTH, MAGIC, RECORDS, Record, SEALS, STRIDE, Totals};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sealed;

/// The file with the records of this process, as long as this is not dropped. Children of a fork
/// share it. A child that writes anything into it falsifies what the file shows; no address, length
/// or position comes from it.
pub struct Records(NonNull<u8>);

// SAFETY: the mapping is at the same address in every thread, and is reached by atomics only.
#[allow(unsafe_code)]
unsafe impl Send for Records {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Records {}

/// The free records, behind the totals in the header.
#[repr(C)]
struct Free {
    /// Records that were ever used.
    used: AtomicU32,
    /// The record that was freed last, plus 1; and, in the upper half, the number of changes
    /// (against the ABA problem).
    last: AtomicU64,
}

const FREE_AT: usize = 2048;
const _: () = assert!(size_of::<Totals>() <= FREE_AT && FREE_AT + size_of::<Free>() <= HEADER);
/// The link to the next free record, behind a [`Record`].
const NEXT_AT: usize = STRIDE - size_of::<u64>();
const _: () = assert!(size_of::<Record>() <= NEXT_AT && HEADER.is_multiple_of(STRIDE));
const _: () = assert!(RECORDS.is_power_of_two() && STRIDE.is_multiple_of(align_of::<Record>()));

/// Attempts to change the list of free records, which another process may change at any time.
const ATTEMPTS: u32 = 100;

impl Records {
    /// Makes the file, maps it, and seals it: no other process can write to it. Returns the file,
    /// which is for the monitor.
    ///
    /// # Errors
    /// Those of memfd_create(2), mmap(2) and fcntl(2) with F_ADD_SEALS; `FBIG` if the process may
    /// not have files of this length, `INVAL` before Linux 5.1.
    #[allow(unsafe_code)]
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        let file = sealed::unsealed("levada-records", LENGTH as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; no other process has the
        // file before it is sealed.
        let start = unsafe { mmap(std::ptr::null_mut(), LENGTH, protection, flags, &file, 0)? };
        let records = Self(NonNull::new(start.cast()).ok_or(Errno::NOMEM)?);
        fcntl_add_seals(&file, SEALS)?;
        records.totals().magic.store(MAGIC, Ordering::Release);
        Ok((file, records))
    }

    /// The sums over closed connections.
    #[allow(unsafe_code)]
    pub fn totals(&self) -> &Totals {
        // SAFETY: the header begins with the totals, which are atomics.
        unsafe { self.0.cast().as_ref() }
    }

    #[allow(unsafe_code)]
    fn free(&self) -> &Free {
        // SAFETY: as in `totals`, at another offset of the header.
        unsafe { self.0.add(FREE_AT).cast().as_ref() }
    }

    /// The record with this number, modulo [`RECORDS`].
    #[inline]
    #[allow(unsafe_code)]
    pub fn record(&self, number: u32) -> &Record {
        let at = HEADER + (number as usize % RECORDS) * STRIDE;
        // SAFETY: the record is within the mapping, aligned, and made of atomics.
        unsafe { self.0.add(at).cast().as_ref() }
    }

    #[allow(unsafe_code)]
    fn next_of(&self, number: u32) -> &AtomicU32 {
        let at = HEADER + (number as usize % RECORDS) * STRIDE + NEXT_AT;
        // SAFETY: as in `record`, at the end of the record's part of the file.
        unsafe { self.0.add(at).cast().as_ref() }
    }

    /// Takes a free record; returns its number. `None` if all are in use.
    pub fn allocate(&self) -> Option<u32> {
        let free = self.free();
        let mut last = free.last.load(Ordering::Acquire);
        for _ in 0..ATTEMPTS {
            let Some(number) = (last as u32).checked_sub(1) else { break };
            let next = self.next_of(number).load(Ordering::Relaxed);
            match exchange(free, last, next) {
                Ok(()) => return Some(number % RECORDS as u32),
                Err(other) => last = other,
            }
        }
        if free.used.load(Ordering::Relaxed) as usize >= RECORDS {
            return None;
        }
        let number = free.used.fetch_add(1, Ordering::Relaxed);
        ((number as usize) < RECORDS).then_some(number)
    }

    /// Gives a record back.
    pub fn release(&self, number: u32) {
        let number = number % RECORDS as u32;
        let free = self.free();
        let mut last = free.last.load(Ordering::Acquire);
        for _ in 0..ATTEMPTS {
            self.next_of(number).store(last as u32, Ordering::Relaxed);
            match exchange(free, last, number + 1) {
                Ok(()) => return,
                Err(other) => last = other,
            }
        }
    }
}

/// Replaces the first free record, if it still is the one of `last`; else returns the present one.
fn exchange(free: &Free, last: u64, first: u32) -> Result<(), u64> {
    let new = ((last >> 32).wrapping_add(1)) << 32 | u64::from(first);
    let exchanged = free.last.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire);
    exchanged.map(drop)
}

impl Drop for Records {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `create` with this length, and no reference to it
        // outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rustix::mm::mmap;

    use super::*;
    use crate::records::{Mode, Snapshot, holds, is_sealed};

    #[test]
    fn records_are_taken_once_until_they_are_given_back() {
        let (_, records) = Records::create().unwrap();
        let all: HashSet<u32> = (0..RECORDS).map(|_| records.allocate().unwrap()).collect();
        assert_eq!((all.len(), records.allocate()), (RECORDS, None));
        records.release(7);
        records.release(5);
        assert_eq!([5, 7].map(Some), [records.allocate(), records.allocate()]);
        assert_eq!(records.allocate(), None);
    }

    #[test]
    fn other_processes_read_the_file_and_cannot_write_to_it() {
        let (file, records) = Records::create().unwrap();
        assert!(is_sealed(&file));
        let number = records.allocate().unwrap();
        records.record(number).mode.store(Mode::Ring as u32, Ordering::Relaxed);
        records.record(number).offer.store(9 << 14 | u64::from(number), Ordering::Relaxed);
        assert_eq!(Snapshot::read(&file).unwrap().connections[0].mode, Mode::Ring);
        assert!(holds(&file, 9 << 14 | u64::from(number)));
        assert!(!holds(&file, 8 << 14 | u64::from(number)));
        assert_eq!(rustix::io::pwrite(&file, &[1], 0), Err(Errno::PERM));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        #[allow(unsafe_code)]
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::SHARED, &file, 0) };
        assert_eq!(mapped.map(drop), Err(Errno::PERM));
    }
}
