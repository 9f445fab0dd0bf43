//! Descriptors of this library's own, which the program must neither meet, nor close, nor miss.
//!
//! Each is noted in a *home*, a static cell, and is used by [`with`] only. So it can be moved to
//! another number when the program wants its number for itself.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use crate::table::DESCRIPTORS;

/// They begin here, or below the limit of descriptors if that is lower, so that the program's have
/// the numbers that it expects.
const FIRST: u64 = 960;
/// Numbers that are left to them below the limit.
const BELOW_LIMIT: u64 = 64;
/// The library has at most one descriptor for as many that the process may have.
const SHARE: u64 = 10;
/// Descriptors of a process with fast sockets before it has a peer: two connections to the monitor,
/// its records, its marks, and its bells.
const NEEDED: u64 = 4 + levada_ring::wire::BELLS as u64;
/// With fewer descriptors, the program has all of them, and stays on TCP.
const MIN_LIMIT: u64 = 128;
const _: () = assert!(NEEDED <= MIN_LIMIT / SHARE);

/// How often to look whether the last thread has used a number, before it is the program's.
const SPINS: u32 = 10_000;

/// For each descriptor of the library, its home.
static HOMES: [AtomicPtr<AtomicI32>; DESCRIPTORS] =
    [const { AtomicPtr::new(null_mut()) }; DESCRIPTORS];
/// Descriptors of the library.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Threads that use one just now.
static USERS: AtomicU32 = AtomicU32::new(0);
/// How often one has moved.
static MOVES: AtomicU32 = AtomicU32::new(0);

fn home_of(fd: i32) -> Option<&'static AtomicPtr<AtomicI32>> {
    HOMES.get(usize::try_from(fd).ok()?)
}

/// Descriptors that the process may have.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns true if the process may have enough descriptors for fast sockets.
pub fn has_room() -> bool {
    limit() >= MIN_LIMIT
}

/// Returns true if the library has no more descriptors than it may under the present limit.
pub fn has_its_share() -> bool {
    let limit = limit();
    let count = (0..END.load(Ordering::Relaxed).min(i32::try_from(limit).unwrap_or(i32::MAX)))
        .filter(|fd| is_ours(*fd))
        .count();
    count == 0 || limit >= MIN_LIMIT && count as u64 <= limit / SHARE
}

/// All descriptors of the library are below this.
static END: AtomicI32 = AtomicI32::new(0);

/// Moves a descriptor to a high number, and notes it in its home as the library's own. One that was
/// there before is closed.
///
/// # Errors
/// Those of fcntl(2) with F_DUPFD_CLOEXEC, and `MFILE` if the library has its share already.
pub fn keep_in(home: &'static AtomicI32, descriptor: OwnedFd) -> Result<(), Errno> {
    let limit = limit();
    if COUNT.load(Ordering::Relaxed) as u64 >= limit / SHARE {
        return Err(Errno::MFILE);
    }
    let moved = fcntl_dupfd_cloexec(&descriptor, first(limit))?;
    note(moved.as_raw_fd(), home).ok_or(Errno::MFILE)?;
    close(home.swap(moved.into_raw_fd(), Ordering::AcqRel));
    Ok(())
}

fn first(limit: u64) -> i32 {
    i32::try_from(FIRST.min(limit.saturating_sub(BELOW_LIMIT))).unwrap_or(0)
}

fn note(fd: i32, home: &'static AtomicI32) -> Option<()> {
    home_of(fd)?.store(std::ptr::from_ref(home).cast_mut(), Ordering::Release);
    END.fetch_max(fd + 1, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Some(())
}

/// Closes the descriptor in a home, if there is one.
pub fn forget(home: &AtomicI32) {
    close(home.swap(-1, Ordering::AcqRel));
}

fn close(fd: i32) {
    let Some(home) = home_of(fd) else { return };
    wait_for_users();
    if !home.swap(null_mut(), Ordering::AcqRel).is_null() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was this library's, and is so no longer.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Calls `use_it` with the descriptor in a home; `None` without one. The descriptor keeps its
/// number until `use_it` returns, which must not wait for anything.
pub fn with<T>(home: &AtomicI32, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    USERS.fetch_add(1, Ordering::SeqCst);
    let fd = home.load(Ordering::SeqCst);
    // SAFETY: the library's functions do not let the program close it, and it is closed or moved
    // only when there are no users.
    let result = (fd >= 0).then(|| use_it(unsafe { BorrowedFd::borrow_raw(fd) }));
    USERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// A duplicate of the descriptor in a home, with a high number.
///
/// # Errors
/// Those of fcntl(2) with F_DUPFD_CLOEXEC; `BADF` without a descriptor.
pub fn duplicate(home: &AtomicI32) -> Result<OwnedFd, Errno> {
    with(home, copy).unwrap_or(Err(Errno::BADF))
}

/// A duplicate of a descriptor, with a high number.
///
/// # Errors
/// Those of fcntl(2) with F_DUPFD_CLOEXEC.
pub fn copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fcntl_dupfd_cloexec(fd, first(limit()))
}

/// Returns true if a descriptor is the library's own.
#[inline]
pub fn is_ours(fd: i32) -> bool {
    home_of(fd).is_some_and(|home| !home.load(Ordering::Relaxed).is_null())
}

/// The program is about to use this number, if it is the library's: its descriptor gets another
/// one. If no number is left, the library has the descriptor no more.
pub fn vacate(fd: i32) {
    // SAFETY: homes are static cells.
    let Some(home) = home_of(fd).and_then(|home| unsafe { home.load(Ordering::Acquire).as_ref() })
    else {
        return;
    };
    // SAFETY: the descriptor is open, and the library's own.
    let moved = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, first(limit()));
    let new = moved.map_or(-1, IntoRawFd::into_raw_fd);
    if note(new, home).is_none() && new >= 0 {
        // SAFETY: it was made above, and noted nowhere.
        drop(unsafe { OwnedFd::from_raw_fd(new) });
    }
    let new = if is_ours(new) { new } else { -1 };
    if home.compare_exchange(fd, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // It was replaced meanwhile: its number is free.
        close(new);
        return;
    }
    MOVES.fetch_add(1, Ordering::Relaxed);
    wait_for_users();
    // The program's call closes the old number.
    if let Some(home) = home_of(fd) {
        home.store(null_mut(), Ordering::Release);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if descriptors have moved: a thread that is about to sleep on one may have read its
/// number before.
pub fn have_moved() -> bool {
    MOVES.load(Ordering::Relaxed) != 0
}

/// Waits until no thread uses a number that it has read before. A thread that does not come to an
/// end was interrupted by the handler that this is called from, or was in another process when that
/// forked.
fn wait_for_users() {
    for _ in 0..SPINS {
        if USERS.load(Ordering::SeqCst) == 0 {
            return;
        }
        std::hint::spin_loop();
    }
}

/// The one thread of a forked child uses none.
pub fn in_child() {
    USERS.store(0, Ordering::SeqCst);
}
