//! Memory of this process that the allocator keeps though nothing uses it.

/// Gives free memory back to the system. The allocator of glibc keeps what was freed between blocks in use, in an arena
/// for each thread, until it is told to (malloc_trim(3)); with other allocators this does nothing. Takes milliseconds, in
/// which other threads may wait for the allocator.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: it touches free memory only, takes the locks of the allocator itself, and has no other preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
