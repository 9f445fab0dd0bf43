//! A set of segments that threads change together.

use std::sync::atomic::{AtomicU64, Ordering};

use levada_ring::SEGMENTS;

/// A bit for each segment.
pub struct Bits([AtomicU64; SEGMENTS / 64]);

impl Bits {
    /// The empty set.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; SEGMENTS / 64])
    }

    fn of(&self, number: u8) -> (&AtomicU64, u64) {
        let number = usize::from(number) % SEGMENTS;
        (&self.0[number / 64], 1 << (number % 64))
    }

    /// Returns true if a segment is in the set.
    pub fn has(&self, number: u8) -> bool {
        let (word, bit) = self.of(number);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Adds a segment to the set, or removes it.
    pub fn set(&self, number: u8, is_in: bool) {
        let (word, bit) = self.of(number);
        match is_in {
            true => word.fetch_or(bit, Ordering::SeqCst),
            false => word.fetch_and(!bit, Ordering::SeqCst),
        };
    }

    /// Removes all segments.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }
}
