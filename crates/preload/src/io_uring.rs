//! Programs that use io_uring: the kernel reads and writes for them what rings of this library
//! would carry.
//!
//! libc has no function for it. A ring that is set up through libc's `syscall` is noticed at once;
//! one that is set up by machine code of the program's own, as liburing does, is found among the
//! descriptors. They are looked through at the first connection that could leave TCP, and then at
//! times. From then on, all connections stay on TCP, and those that have left it go back.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use levada_ring::records::Reason;

use crate::{spin, table, tcp_only};

/// Connections that wanted to leave TCP.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// When descriptors were last looked through, in [`spin::ticks`].
static LOOKED: AtomicU32 = AtomicU32::new(0);
/// The least time between two looks that the number of connections does not demand, in
/// milliseconds.
const INTERVAL: u32 = 1000;

/// The program has set up io_uring.
pub fn found() {
    tcp_only::enter(Reason::Unsupported);
}

/// Whether this process uses io_uring, as far as can be seen when a connection wants to leave TCP.
pub fn is_used() -> bool {
    let asked = ASKED.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let now = spin::ticks();
    let last = LOOKED.load(Ordering::Relaxed);
    if !asked.is_power_of_two() && now.wrapping_sub(last) < INTERVAL {
        return false;
    }
    LOOKED.store(now, Ordering::Relaxed);
    let is_used = is_among_descriptors();
    if is_used {
        found();
    }
    is_used
}

fn is_among_descriptors() -> bool {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    // Sockets are known, and may be many.
    let is_other = |entry: &fs::DirEntry| {
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        fd.is_none_or(|fd| table::find(fd).is_none())
    };
    let links = entries.filter(is_other).filter_map(|entry| fs::read_link(entry.path()).ok());
    links.into_iter().any(|link| link.as_os_str().as_bytes() == b"anon_inode:[io_uring]")
}
