//! Which connections of a process were rung for: a bit for each, in memory that the process shares
//! with its peers.
//!
//! A peer sets the bit, and then rings a bell. So a process with thousands of connections looks at
//! those that something has happened on.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::atomic::{AtomicU64, Ordering};
use crate::page::{Atomics, Page};
use crate::records::RECORDS;
use crate::sealed::OpenError;

/// Bits of a word.
const BITS: usize = 64;
const WORDS: usize = RECORDS / BITS;
const _: () = assert!(RECORDS.is_multiple_of(BITS * BITS));

#[repr(C)]
struct Bits {
    /// A bit for each of `words` that may have one set.
    used: [AtomicU64; WORDS / BITS],
    words: [AtomicU64; WORDS],
}

// SAFETY: atomics only.
#[allow(unsafe_code)]
unsafe impl Atomics for Bits {}

/// The bits of one process.
pub struct Marks(Page<Bits>);

impl Marks {
    /// Makes the file, which is handed to peers.
    ///
    /// # Errors
    /// Those of memfd_create(2), fallocate(2) and mmap(2).
    pub fn create() -> Result<(OwnedFd, Self), Errno> {
        Page::create("levada-marks").map(|(file, page)| (file, Self(page)))
    }

    /// Maps the file of another process.
    ///
    /// # Errors
    /// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
    pub fn open(file: impl AsFd) -> Result<Self, OpenError> {
        Page::open(file).map(Self)
    }

    /// Sets the bit of a connection. Numbers from [`RECORDS`] on have none.
    pub fn set(&self, number: u16) {
        let word = usize::from(number) / BITS;
        let bit = usize::from(number) % BITS;
        let bits = self.0.get();
        if let Some(bits_of_word) = bits.words.get(word) {
            bits_of_word.fetch_or(1 << bit, Ordering::Release);
            // After the bit: who sees that the word is used sees the bit, or has taken it already.
            bits.used[word / BITS].fetch_or(1 << (word % BITS), Ordering::Release);
        }
    }

    /// Whether a bit may be set.
    pub fn is_any(&self) -> bool {
        self.0.get().used.iter().any(|used| used.load(Ordering::Relaxed) != 0)
    }

    /// Clears all bits, and calls `each` with the number of each that was set.
    pub fn take(&self, mut each: impl FnMut(u16)) {
        let bits = self.0.get();
        for (at, used) in bits.used.iter().enumerate() {
            if used.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in ones(used.swap(0, Ordering::Acquire)) {
                let word = at * BITS + word;
                for bit in ones(bits.words[word].swap(0, Ordering::Acquire)) {
                    each((word * BITS + bit) as u16);
                }
            }
        }
    }
}

/// The positions of the bits that are set.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(marks: &Marks) -> Vec<u16> {
        let mut all = Vec::new();
        marks.take(|number| all.push(number));
        all
    }

    #[test]
    fn bits_of_a_peer_are_seen_once() {
        let (file, own) = Marks::create().unwrap();
        let peer = Marks::open(&file).unwrap();
        assert!(!own.is_any());
        let last = RECORDS as u16 - 1;
        for number in [0, 63, 64, 5000, last, 5000] {
            peer.set(number);
        }
        peer.set(u16::MAX);
        assert!(own.is_any());
        assert_eq!(taken(&own), [0, 63, 64, 5000, last]);
        assert!(!own.is_any());
        assert_eq!(taken(&own), []);
    }

    #[test]
    fn each_bit_that_is_set_while_others_are_taken_is_seen() {
        const COUNT: u16 = 2000;
        let (file, own) = Marks::create().unwrap();
        let writer = std::thread::spawn(move || {
            let peer = Marks::open(&file).unwrap();
            (0..COUNT).for_each(|number| peer.set(number));
        });
        let mut seen = Vec::new();
        while seen.len() < usize::from(COUNT) {
            seen.extend(taken(&own));
        }
        writer.join().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..COUNT));
    }
}
