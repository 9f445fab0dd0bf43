//! Copies by instructions that the compiler does not see into. None of them changes the direction
//! flag, which is clear by the ABI.

#![allow(unsafe_code)]

use std::arch::asm;

/// Bytes that one round of the loop copies, and the alignment of what it writes.
const ROUND: usize = 64;
/// From here on, the string instruction is faster than the loop, if it is fast at all: see
/// [`is_string_slow`].
const LONG: usize = 2048;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Copies `length` bytes.
///
/// # Safety
/// There are so many at `from`, and room for them at `to`, which do not overlap.
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises; each arm copies at most `length` bytes from both starts, or
    // up to both ends.
    unsafe {
        match length {
            0 => {}
            1..=3 => three_bytes(to, from, length),
            4..=7 => ends_of_4(to, from, length),
            8..=16 => ends_of_8(to, from, length),
            17..=32 => ends_of_16(to, from, length),
            33..=ROUND => {
                let rest = length - 32;
                ends_of_16(to, from, 32);
                ends_of_16(to.add(rest), from.add(rest), 32);
            }
            LONG.. if !is_string_slow(to, from) => by_string(to, from, length),
            _ => by_rounds(to, from, length),
        }
    }
}

/// AMD's Zen 3 takes 25 times as long for a string instruction that writes 1 to 32 bytes behind
/// where it reads, counted within pages: it takes them for one place. Buffers that malloc(3) maps
/// begin 16 bytes into a page, and rings at its start.
fn is_string_slow(to: *mut u8, from: *const u8) -> bool {
    to.addr().wrapping_sub(from.addr()) % PAGE < ROUND
}

/// # Safety
/// As [`copy`].
unsafe fn by_string(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The first byte, the middle one, and the last.
///
/// # Safety
/// As [`copy`], with a length of 1 to 3.
unsafe fn three_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "mov {first}, [{from}]",
            "mov {middle}, [{from} + {half}]",
            "mov {last}, [{from} + {length} - 1]",
            "mov [{to}], {first}",
            "mov [{to} + {half}], {middle}",
            "mov [{to} + {length} - 1], {last}",
            first = out(reg_byte) _,
            middle = out(reg_byte) _,
            last = out(reg_byte) _,
            from = in(reg) from,
            to = in(reg) to,
            half = in(reg) length / 2,
            length = in(reg) length,
            options(nostack, preserves_flags)
        );
    }
}

/// The first four bytes and the last four.
///
/// # Safety
/// As [`copy`], with a length of 4 to 8.
unsafe fn ends_of_4(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "mov {first:e}, [{from}]",
            "mov {last:e}, [{from} + {length} - 4]",
            "mov [{to}], {first:e}",
            "mov [{to} + {length} - 4], {last:e}",
            first = out(reg) _,
            last = out(reg) _,
            from = in(reg) from,
            to = in(reg) to,
            length = in(reg) length,
            options(nostack, preserves_flags)
        );
    }
}

/// The first eight bytes and the last eight.
///
/// # Safety
/// As [`copy`], with a length of 8 to 16.
unsafe fn ends_of_8(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "mov {first}, [{from}]",
            "mov {last}, [{from} + {length} - 8]",
            "mov [{to}], {first}",
            "mov [{to} + {length} - 8], {last}",
            first = out(reg) _,
            last = out(reg) _,
            from = in(reg) from,
            to = in(reg) to,
            length = in(reg) length,
            options(nostack, preserves_flags)
        );
    }
}

/// The first sixteen bytes and the last sixteen.
///
/// # Safety
/// As [`copy`], with a length of 16 to 32.
unsafe fn ends_of_16(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "movups {first}, [{from}]",
            "movups {last}, [{from} + {length} - 16]",
            "movups [{to}], {first}",
            "movups [{to} + {length} - 16], {last}",
            first = out(xmm_reg) _,
            last = out(xmm_reg) _,
            from = in(reg) from,
            to = in(reg) to,
            length = in(reg) length,
            options(nostack, preserves_flags)
        );
    }
}

/// The first round and the last one write anywhere, those between them aligned. Bytes of two rounds
/// are copied twice.
///
/// # Safety
/// As [`copy`], with a length of [`ROUND`] at least.
unsafe fn by_rounds(to: *mut u8, from: *const u8, length: usize) {
    let skipped = ROUND - to.addr() % ROUND;
    // All but the last round, which has 1 to `ROUND` bytes that the others leave.
    let rounds = (length - skipped).saturating_sub(1) / ROUND;
    let last = length - ROUND;
    // SAFETY: as the caller promises: the first round ends behind `skipped`, and `rounds` rounds
    // from there before the end.
    unsafe {
        round(to, from);
        if rounds > 0 {
            aligned_rounds(to.add(skipped), from.add(skipped), rounds);
        }
        round(to.add(last), from.add(last));
    }
}

/// # Safety
/// As [`copy`], with a length of [`ROUND`].
unsafe fn round(to: *mut u8, from: *const u8) {
    // SAFETY: as the caller promises.
    unsafe {
        ends_of_16(to, from, 32);
        ends_of_16(to.add(32), from.add(32), 32);
    }
}

/// # Safety
/// As [`copy`], with a length of `rounds` times [`ROUND`], one at least; `to` is aligned to
/// [`ROUND`].
unsafe fn aligned_rounds(to: *mut u8, from: *const u8, rounds: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movaps [{to}], {a}",
            "movaps [{to} + 16], {b}",
            "movaps [{to} + 32], {c}",
            "movaps [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "dec {rounds}",
            "jnz 2b",
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            rounds = inout(reg) rounds => _,
            options(nostack)
        );
    }
}
