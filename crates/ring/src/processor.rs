//! The processor that an end of a ring runs on, which it shows to its peer.
//!
//! Each end writes it into the cache line of its own cursor, whenever it moves the cursor: the peer
//! reads this line anyway. After a fork, and with several threads, it is the processor of the
//! thread that moved the cursor last.

use crate::atomic::AtomicU32;

/// The number of the processor of this thread, plus 1; 0 if the system does not report it.
#[cfg(not(loom))]
#[inline]
#[allow(unsafe_code)]
pub fn processor() -> u32 {
    // SAFETY: the function takes nothing. It reads a word that the kernel keeps for this thread
    // (rseq), or asks the vDSO.
    let number = unsafe { libc::sched_getcpu() };
    u32::try_from(number).map_or(0, |number| number.saturating_add(1))
}

/// Writes the processor of this thread.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn show(word: &AtomicU32) {
    word.store(processor(), crate::atomic::Ordering::Relaxed);
}

/// No order depends on this word: loom would only explore more of them.
#[cfg(loom)]
pub(crate) fn show(_word: &AtomicU32) {}
