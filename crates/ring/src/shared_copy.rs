//! Copies between private memory and memory that another process may change meanwhile.
//!
//! A plain copy of such memory would be a data race, whose behaviour Rust does not define. These
//! copies are opaque to the compiler: it assumes nothing about the shared bytes, and does not read
//! them twice. What is copied while the other process writes may be any mixture of old and new
//! bytes; a ring never copies such bytes unless its peer is hostile.

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

#[cfg(all(target_arch = "x86_64", not(sanitizer)))]
mod x86_64;

#[cfg(all(target_arch = "x86_64", not(sanitizer)))]
use x86_64::copy;

/// By volatile access to each byte, which sanitizers see.
#[cfg(not(all(target_arch = "x86_64", not(sanitizer))))]
#[allow(unsafe_code)]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    for at in 0..length {
        // SAFETY: as the caller of `copy_in` or `copy_out` promises.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_bytes_and_no_others() {
        const ROOM: usize = 3 << 12;
        let from: Vec<u8> = (0..ROOM).map(|at| (at * 7 % 251) as u8).collect();
        let lengths = (0..200).chain([255, 256, 257, 2047, 2048, 2049, 4095, 4096, 4097]);
        for length in lengths {
            for (skip_to, skip_from) in [(0, 0), (1, 0), (16, 0), (63, 1), (64, 3), (4097, 4096)] {
                let mut to = vec![0xee; ROOM];
                let start = skip_to;
                let end = skip_to + length;
                let expected = &from[skip_from..skip_from + length];
                copy_to(&mut to[start..end], expected);
                assert_eq!(&to[start..end], expected, "{length} bytes, {skip_to}, {skip_from}");
                let others = to[..start].iter().chain(&to[end..]);
                assert!(others.eq(vec![&0xee; ROOM - length]), "{length} bytes, {skip_to}");
            }
        }
    }

    /// `copy_out` differs in the types only.
    #[allow(unsafe_code)]
    fn copy_to(to: &mut [u8], from: &[u8]) {
        let start = NonNull::new(to.as_mut_ptr()).unwrap();
        // SAFETY: the buffer is as long as the bytes, which are others.
        unsafe { copy_in(start, from) };
    }
}
