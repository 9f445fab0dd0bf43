//! Free memory that the allocator keeps.

/// Returns free memory to the system. The allocator of glibc keeps freed memory between blocks in use, in an arena for
/// each thread, until malloc_trim(3) is called; with other allocators this does nothing. It takes milliseconds, in which
/// other threads may wait for the allocator.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: malloc_trim touches free memory only, takes the allocator's locks itself, and has no other preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
