//! How content is divided into chunks.

use std::ops::Range;

use thiserror::Error;

/// The most chunks of a content: 1 TiB in chunks of 64 KiB.
pub const MAX_CHUNKS: u32 = 1 << 24;

/// The size of a chunk: a power of two from 1 KiB, which is BLAKE3's own chunk, to 1 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkSize(u8);

/// Why content cannot be divided in this way.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// The size of a chunk is not allowed.
    #[error("a chunk has 1, 2, 4 … 1024 KiB")]
    ChunkSize,
    /// More than [`MAX_CHUNKS`].
    #[error("the content has more than {MAX_CHUNKS} chunks; use larger ones")]
    TooManyChunks,
}

impl ChunkSize {
    /// 64 KiB.
    pub const DEFAULT: Self = Self(16);

    /// A chunk of `bytes`.
    ///
    /// # Errors
    /// [`GeometryError::ChunkSize`] if it is not a power of two from 1 KiB to 1 MiB.
    pub fn new(bytes: u32) -> Result<Self, GeometryError> {
        if !bytes.is_power_of_two() || !(1 << 10..=1 << 20).contains(&bytes) {
            return Err(GeometryError::ChunkSize);
        }
        Ok(Self(bytes.trailing_zeros() as u8))
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        1 << self.0
    }
}

/// The length of content, in chunks of one size. The last chunk may be shorter; content of 0 bytes
/// has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    length: u64,
    chunk: ChunkSize,
}

impl Geometry {
    /// Divides `length` bytes.
    ///
    /// # Errors
    /// [`GeometryError::TooManyChunks`].
    pub fn new(length: u64, chunk: ChunkSize) -> Result<Self, GeometryError> {
        if length.div_ceil(u64::from(chunk.bytes())) > u64::from(MAX_CHUNKS) {
            return Err(GeometryError::TooManyChunks);
        }
        Ok(Self { length, chunk })
    }

    /// The bytes of the content.
    pub fn length(self) -> u64 {
        self.length
    }

    /// The size of all chunks but the last.
    pub fn chunk_size(self) -> ChunkSize {
        self.chunk
    }

    /// The number of chunks.
    pub fn chunks(self) -> u32 {
        self.length.div_ceil(u64::from(self.chunk.bytes())) as u32
    }

    /// The bytes of chunk `index`; empty behind the last one.
    pub fn range(self, index: u32) -> Range<u64> {
        let size = u64::from(self.chunk.bytes());
        let start = (u64::from(index) * size).min(self.length);
        start..(start + size).min(self.length)
    }

    /// The levels of the hash tree above a chunk: 0 if there is only one.
    pub fn levels(self) -> u8 {
        self.chunks().max(1).next_power_of_two().trailing_zeros() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_content() {
        for (length, chunks, levels) in
            [(0, 0, 0), (1, 1, 0), (1024, 1, 0), (1025, 2, 1), (5000, 5, 3)]
        {
            let geometry = Geometry::new(length, ChunkSize::new(1024).unwrap()).unwrap();
            assert_eq!((geometry.chunks(), geometry.levels()), (chunks, levels), "{length}");
            let covered: u64 =
                (0..chunks).map(|at| geometry.range(at)).map(|r| r.end - r.start).sum();
            assert_eq!(covered, length);
            assert!(geometry.range(chunks).is_empty() && geometry.range(u32::MAX).is_empty());
        }
    }

    #[test]
    fn sizes_and_numbers_are_bounded() {
        for bytes in [0, 1, 512, 1000, 3 << 10, 2 << 20] {
            assert_eq!(ChunkSize::new(bytes), Err(GeometryError::ChunkSize));
        }
        let chunk = ChunkSize::DEFAULT;
        let most = u64::from(MAX_CHUNKS) * u64::from(chunk.bytes());
        assert!(Geometry::new(most, chunk).is_ok());
        assert_eq!(Geometry::new(most + 1, chunk), Err(GeometryError::TooManyChunks));
    }
}
