//! Free memory that the allocator keeps.

/// The most arenas of the allocator. A node with a hundred peers in mediated mode holds 64 MB with
/// two, and 76 MB without a limit.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: libc::c_int = 2;

/// Returns free memory to the system. The allocator of glibc keeps freed memory between blocks in
/// use, in an arena for each thread, until malloc_trim(3) is called; with other allocators this
/// does nothing. It takes milliseconds, in which other threads may wait for the allocator.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    trim();
}

/// Limits how many arenas the allocator has. The allocator of glibc has eight for each processor,
/// and each keeps memory that was freed in it; with other allocators this does nothing. To be
/// called before other threads start.
pub fn limit_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    set_most_arenas();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn set_most_arenas() {
    // SAFETY: mallopt sets a number of the allocator under its lock and has no preconditions.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: malloc_trim touches free memory only, takes the allocator's locks itself, and has no
    // other preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
