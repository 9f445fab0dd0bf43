//! Copies between private memory and memory that another process may change meanwhile.
//!
//! A plain copy of such memory would be a data race, whose behaviour Rust does not define. These copies are opaque to the
//! compiler: it assumes nothing about the shared bytes, and does not read them twice. What is copied while the other process
//! writes may be any mixture of old and new bytes; a ring never copies such bytes unless its peer is hostile.

use std::ptr::NonNull;

/// Copies `bytes` to shared memory at `to`.
///
/// # Safety
/// `to` is the start of `bytes.len()` mapped, writable bytes, which are no part of `bytes`.
#[allow(unsafe_code)]
pub(crate) unsafe fn copy_in(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: as the caller promises.
    unsafe { copy(to.as_ptr(), bytes.as_ptr(), bytes.len()) }
}

/// Copies shared memory at `from` to `bytes`.
///
/// # Safety
/// `from` is the start of `bytes.len()` mapped bytes, which are no part of `bytes`.
#[allow(unsafe_code)]
pub(crate) unsafe fn copy_out(from: NonNull<u8>, bytes: &mut [u8]) {
    // SAFETY: as the caller promises.
    unsafe { copy(bytes.as_mut_ptr(), from.as_ptr(), bytes.len()) }
}

/// By one string instruction, which processors with fast short moves start in a few cycles.
#[cfg(all(target_arch = "x86_64", not(sanitizer)))]
#[allow(unsafe_code)]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller of `copy_in` or `copy_out` promises. The instruction reads `length` bytes and writes as many;
    // the direction flag is clear by the ABI, and flags are not changed.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// By volatile access to each byte, which sanitizers see.
#[cfg(not(all(target_arch = "x86_64", not(sanitizer))))]
#[allow(unsafe_code)]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    for at in 0..length {
        // SAFETY: as the caller of `copy_in` or `copy_out` promises.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
}
