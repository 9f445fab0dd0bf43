//! Which chunks a peer has.

use std::ops::Range;

/// A set of chunks, one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Box<[u64]>,
    length: u32,
    count: u32,
}

impl Bitmap {
    /// An empty set of chunks below `length`. Allocates one bit for each.
    pub fn new(length: u32) -> Self {
        Self { words: vec![0; length.div_ceil(64) as usize].into(), length, count: 0 }
    }

    /// The set in `bytes`: chunk 0 is the lowest bit of the first byte. None unless `bytes` has
    /// exactly the bits of `length` chunks, and those behind them are 0.
    pub fn from_bytes(length: u32, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != length.div_ceil(8) as usize {
            return None;
        }
        let mut bitmap = Self::new(length);
        for (word, part) in bitmap.words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..part.len()].copy_from_slice(part);
            *word = u64::from_le_bytes(whole);
        }
        let excess = length % 64;
        if excess != 0 && bitmap.words.last().is_some_and(|last| last >> excess != 0) {
            return None;
        }
        bitmap.count = bitmap.words.iter().map(|word| word.count_ones()).sum();
        Some(bitmap)
    }

    /// The bytes that [`Self::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.length.div_ceil(8) as usize);
        bytes
    }

    /// The number of chunks that can be in the set.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The number of chunks in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether all chunks are in the set; true if there are none.
    pub fn is_full(&self) -> bool {
        self.count == self.length
    }

    /// Whether chunk `index` is in the set.
    pub fn contains(&self, index: u32) -> bool {
        index < self.length && self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Adds a chunk. False if it is there already, or not below [`Self::length`].
    pub fn insert(&mut self, index: u32) -> bool {
        if index >= self.length || self.contains(index) {
            return false;
        }
        self.words[index as usize / 64] |= 1 << (index % 64);
        self.count += 1;
        true
    }

    /// Removes a chunk. False if it is not there.
    pub fn remove(&mut self, index: u32) -> bool {
        if !self.contains(index) {
            return false;
        }
        self.words[index as usize / 64] &= !(1 << (index % 64));
        self.count -= 1;
        true
    }

    /// The first chunk at or behind `from` that is not in the set; does not go round.
    pub fn next_missing(&self, from: u32) -> Option<u32> {
        self.next(from, |word| !word)
    }

    /// The first chunk at or behind `from` that is in the set; does not go round.
    pub fn next_present(&self, from: u32) -> Option<u32> {
        self.next(from, |word| word)
    }

    /// The first chunk at or behind `from` that is in this set and not in `other`, which has the
    /// same length; does not go round.
    pub fn next_beyond(&self, other: &Self, from: u32) -> Option<u32> {
        let mut at = from;
        while at < self.length {
            let position = at as usize / 64;
            let other = other.words.get(position).copied().unwrap_or_default();
            let word = (self.words[position] & !other) >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn next(&self, from: u32, of: impl Fn(u64) -> u64) -> Option<u32> {
        let mut at = from;
        while at < self.length {
            let word = of(self.words[at as usize / 64]) >> (at % 64);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < self.length).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The runs of chunks in the set, in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next_present(at)?;
            at = self.next_missing(start).unwrap_or(self.length);
            Some(start..at)
        })
    }

    /// The runs of chunks that are not in the set, in order.
    pub fn gaps(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next_missing(at)?;
            at = self.next_present(start).unwrap_or(self.length);
            Some(start..at)
        })
    }

    /// The levels of the hash tree between a chunk and its lowest ancestor that is verified once
    /// every chunk of this set is: so many siblings prove the chunk. The tree has `levels` levels
    /// above the chunks.
    pub fn missing_levels(&self, index: u32, levels: u8) -> u8 {
        let empty_below = |level: &u8| {
            let start = index >> level << level;
            let end = start.saturating_add(1 << level);
            self.next_present(start).is_none_or(|present| present >= end)
        };
        (0..=levels).take_while(empty_below).last().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(length: u32, chunks: &[u32]) -> Bitmap {
        let mut bitmap = Bitmap::new(length);
        chunks.iter().for_each(|index| assert!(bitmap.insert(*index)));
        bitmap
    }

    #[test]
    fn runs_and_gaps_cover_all_chunks() {
        let bitmap = of(130, &[0, 1, 5, 63, 64, 129]);
        let runs: Vec<_> = bitmap.runs().collect();
        assert_eq!(runs, [0..2, 5..6, 63..65, 129..130]);
        let gaps: Vec<_> = bitmap.gaps().collect();
        assert_eq!(gaps, [2..5, 6..63, 65..129]);
        assert_eq!(Bitmap::new(0).gaps().next(), None);
        assert!(Bitmap::new(0).is_full());
    }

    #[test]
    fn chunks_behind_the_end_are_refused() {
        let mut bitmap = Bitmap::new(3);
        assert!(!bitmap.insert(3) && !bitmap.insert(u32::MAX) && !bitmap.contains(64));
        assert!(bitmap.insert(2) && !bitmap.insert(2) && bitmap.remove(2) && !bitmap.remove(2));
    }

    #[test]
    fn what_another_lacks_is_found() {
        let one = of(200, &[3, 64, 70, 199]);
        let other = of(200, &[3, 70]);
        assert_eq!(one.next_beyond(&other, 0), Some(64));
        assert_eq!(one.next_beyond(&other, 65), Some(199));
        assert_eq!((one.next_beyond(&one, 0), one.next_beyond(&other, 200)), (None, None));
    }

    #[test]
    fn only_missing_levels_are_counted() {
        let none = Bitmap::new(8);
        assert_eq!(none.missing_levels(3, 3), 3);
        let first = of(8, &[0]);
        assert_eq!([1, 2, 3, 4, 7].map(|at| first.missing_levels(at, 3)), [0, 1, 1, 2, 2]);
        assert_eq!(Bitmap::new(1).missing_levels(0, 0), 0);
    }

    #[test]
    fn bytes_are_read_back() {
        bolero::check!().with_type::<(u16, Vec<u8>)>().for_each(|(length, bytes)| {
            let length = u32::from(*length) % 512;
            if let Some(bitmap) = Bitmap::from_bytes(length, bytes) {
                assert_eq!(&bitmap.to_bytes(), bytes);
                assert_eq!(bitmap.count() as usize, bitmap.runs().map(|r| r.len()).sum());
                let gaps: usize = bitmap.gaps().map(|r| r.len()).sum();
                assert_eq!(gaps as u32 + bitmap.count(), length);
            }
        });
        assert!(Bitmap::from_bytes(3, &[0b1000]).is_none());
    }
}
