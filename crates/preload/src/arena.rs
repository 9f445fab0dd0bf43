//! The state of all connections, in one file that forked processes share, as they share the connections themselves.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use levada_ring::records::{HEADER, LENGTH, MAGIC, RECORDS, STRIDE, Totals};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::connection::Connection;
use crate::private;

/// The file; -1 before [`create`].
static FILE: AtomicI32 = AtomicI32::new(-1);
/// Where the file is mapped; null before [`create`].
static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// What concerns all records, behind the totals in the header.
#[repr(C)]
struct Shared {
    /// Records that were ever used.
    used: AtomicU32,
    /// The last record that was freed, plus 1; and, in the upper half, how often this has changed.
    last_free: AtomicU64,
}

const SHARED_AT: usize = 2048;
const _: () =
    assert!(size_of::<Totals>() <= SHARED_AT && SHARED_AT + size_of::<Shared>() <= HEADER);
const _: () = assert!(size_of::<Connection>() <= STRIDE && HEADER.is_multiple_of(STRIDE));

/// Makes the file and maps it.
///
/// # Errors
/// Those of memfd_create(2) and mmap(2). All connections then stay on TCP.
pub fn create() -> Result<(), Errno> {
    let file = memfd_create("levada-records", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, LENGTH as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that cannot become shorter.
    let start = unsafe {
        mmap(
            std::ptr::null_mut(),
            LENGTH,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            &file,
            0,
        )?
    };
    START.store(start.cast(), Ordering::Release);
    totals().ok_or(Errno::NOMEM)?.magic.store(MAGIC, Ordering::Release);
    FILE.store(private::keep(file)?.into_raw_fd(), Ordering::Release);
    Ok(())
}

/// The file, for the monitor.
pub fn file() -> Option<BorrowedFd<'static>> {
    let fd = FILE.load(Ordering::Acquire);
    // SAFETY: the descriptor is private to this library, whose functions do not let the program close it.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn start() -> Option<NonNull<u8>> {
    NonNull::new(START.load(Ordering::Acquire))
}

/// What closed connections have carried.
pub fn totals() -> Option<&'static Totals> {
    // SAFETY: the header begins with the totals, which are atomics; the mapping stays until the process ends.
    start().map(|start| unsafe { start.cast().as_ref() })
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: as in `totals`, at another offset of the header.
    start().map(|start| unsafe { start.add(SHARED_AT).cast().as_ref() })
}

/// The connection with this number. `number` is less than [`RECORDS`].
pub fn connection(number: u32) -> Option<&'static Connection> {
    let number = usize::try_from(number).ok().filter(|number| *number < RECORDS)?;
    // SAFETY: the record is within the mapping, and made of atomics, and of cells that its locks protect; a new page is zero,
    // which is valid for each.
    start().map(|start| unsafe { start.add(HEADER + number * STRIDE).cast().as_ref() })
}

/// The number of a connection.
pub fn number(connection: &Connection) -> u32 {
    let start = START.load(Ordering::Acquire) as usize + HEADER;
    ((std::ptr::from_ref(connection) as usize - start) / STRIDE) as u32
}

/// The numbers of all records that were ever used are below this.
pub fn used() -> usize {
    shared().map_or(0, |shared| shared.used.load(Ordering::Relaxed) as usize).min(RECORDS)
}

/// A record that is not in use, and its number. `None` if there is none.
pub fn allocate() -> Option<(u32, &'static Connection)> {
    let shared = shared()?;
    let mut last = shared.last_free.load(Ordering::Acquire);
    while let Some(number) = (last as u32).checked_sub(1) {
        let connection = connection(number)?;
        let next = connection.next_free.load(Ordering::Relaxed);
        let new = ((last >> 32) + 1) << 32 | u64::from(next);
        match shared.last_free.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some((number, connection)),
            Err(other) => last = other,
        }
    }
    if shared.used.load(Ordering::Relaxed) as usize >= RECORDS {
        return None;
    }
    let number = shared.used.fetch_add(1, Ordering::Relaxed);
    connection(number).map(|connection| (number, connection))
}

/// Gives a record back.
pub fn release(number: u32) {
    let (Some(shared), Some(connection)) = (shared(), connection(number)) else { return };
    let mut last = shared.last_free.load(Ordering::Acquire);
    loop {
        connection.next_free.store(last as u32, Ordering::Relaxed);
        let new = ((last >> 32) + 1) << 32 | u64::from(number + 1);
        match shared.last_free.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => last = other,
        }
    }
}
