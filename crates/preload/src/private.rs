//! Descriptors of this library's own, which the program must neither meet nor close.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use crate::table::DESCRIPTORS;

/// They begin here, or below the limit of descriptors if that is lower, so that the program's have the numbers that it expects.
const FIRST: u64 = 960;
/// Room that is left below the limit.
const BELOW_LIMIT: u64 = 64;

/// With fewer descriptors, the program has all of them, and stays on TCP.
const LEAST: u64 = 2 * BELOW_LIMIT;

/// A bit for each descriptor.
static OURS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

fn word(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    OURS.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether the process may have so many descriptors that the program does not miss those of this library.
pub fn has_room() -> bool {
    limit() >= LEAST
}

/// Moves a descriptor to a high number, and marks it as the library's own.
///
/// # Errors
/// Those of fcntl(2) with F_DUPFD_CLOEXEC, `MFILE` above all.
pub fn keep(descriptor: OwnedFd) -> Result<OwnedFd, Errno> {
    let from = FIRST.min(limit().saturating_sub(BELOW_LIMIT));
    let moved = fcntl_dupfd_cloexec(&descriptor, i32::try_from(from).unwrap_or(0))?;
    let (word, bit) = word(moved.as_raw_fd()).ok_or(Errno::MFILE)?;
    word.fetch_or(bit, Ordering::AcqRel);
    Ok(moved)
}

/// Whether a descriptor is the library's own.
pub fn is_ours(fd: i32) -> bool {
    word(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Closes one that [`keep`] has returned. Other numbers are left alone.
pub fn forget(fd: i32) {
    let Some((word, bit)) = word(fd) else { return };
    if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
        // SAFETY: it was this library's, and is so no longer.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}
