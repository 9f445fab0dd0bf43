//! The file beside a partial download: which chunks are there, and the hash tree as far as it is known.
//!
//! Its layout: `lvpart1` and a zero (8 bytes), root (32), length (8, big-endian), size of a chunk (4, big-endian), zeros (12); then the bitmap of
//! the chunks, one bit each, lowest first; then the nodes of the tree, 32 bytes each, zeros for those that are not known. A bit counts only if
//! the nodes lead from the root to its chunk, so that a file that was written in part does no harm.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bitmap::Bitmap;
use crate::content::tree::{ChunkHash, Tree};
use crate::{ChunkSize, ContentId, Geometry};

const MAGIC: &[u8; 8] = b"lvpart1\0";
const HEADER: usize = 64;

/// Where each part of the file is.
pub(super) struct Sidecar {
    id: ContentId,
}

impl Sidecar {
    pub(super) fn new(id: ContentId) -> Self {
        Self { id }
    }

    /// Writes the header of a new file; all else is zeros.
    pub(super) fn create(&self, file: &File) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..40].copy_from_slice(&self.id.root);
        header[40..48].copy_from_slice(&self.id.geometry.length().to_be_bytes());
        header[48..52].copy_from_slice(&self.id.geometry.chunk_size().bytes().to_be_bytes());
        let nodes = Tree::new(self.id).nodes().len();
        file.set_len((HEADER + self.bitmap_bytes() + nodes * 32) as u64)?;
        file.write_all_at(&header, 0)
    }

    /// The content that a file belongs to; None if it is not a sidecar.
    pub(super) fn content(header: &[u8]) -> Option<ContentId> {
        let header: &[u8; HEADER] = header.first_chunk()?;
        let length = u64::from_be_bytes(header[40..48].try_into().ok()?);
        let chunk = u32::from_be_bytes(header[48..52].try_into().ok()?);
        let geometry = Geometry::new(length, ChunkSize::new(chunk).ok()?).ok()?;
        let root = header[8..40].try_into().ok()?;
        (header[..8] == *MAGIC).then_some(ContentId { root, geometry })
    }

    /// Reads what is there. What is not proved by the tree is left out.
    pub(super) fn load(&self, file: &File) -> io::Result<(Tree, Bitmap)> {
        let mut bytes = vec![0; self.bitmap_bytes()];
        file.read_exact_at(&mut bytes, HEADER as u64)?;
        let mut nodes: Vec<ChunkHash> = vec![[0; 32]; Tree::new(self.id).nodes().len()];
        file.read_exact_at(nodes.as_flattened_mut(), self.nodes_start())?;
        let tree = Tree::restore(self.id, nodes);
        let chunks = self.id.geometry.chunks();
        let mut have = Bitmap::new(chunks);
        for index in 0..chunks {
            let marked = bytes[index as usize / 8] >> (index % 8) & 1 == 1;
            if marked && (chunks == 1 || tree.missing_levels(index) == 0) {
                have.insert(index);
            }
        }
        Ok((tree, have))
    }

    /// Writes nodes of the tree, then the bits of `chunks`: a bit is never there without its nodes, unless the system has lost the write.
    pub(super) fn store(
        &self,
        file: &File,
        (tree, nodes): (&Tree, &mut Vec<usize>),
        (have, chunks): (&Bitmap, &mut Vec<u32>),
    ) -> io::Result<()> {
        nodes.sort_unstable();
        for run in nodes.chunk_by(|one, next| *next == one + 1) {
            let values = &tree.nodes()[run[0]..run[0] + run.len()];
            file.write_all_at(values.as_flattened(), self.nodes_start() + run[0] as u64 * 32)?;
        }
        let mut positions: Vec<u32> = chunks.iter().map(|index| index / 8).collect();
        positions.sort_unstable();
        positions.dedup();
        for position in positions {
            let bit = |bit| u8::from(have.contains(position * 8 + bit)) << bit;
            let byte = (0..8).map(bit).fold(0, |all, one| all | one);
            file.write_all_at(&[byte], HEADER as u64 + u64::from(position))?;
        }
        nodes.clear();
        chunks.clear();
        Ok(())
    }

    fn bitmap_bytes(&self) -> usize {
        self.id.geometry.chunks().div_ceil(8) as usize
    }

    fn nodes_start(&self) -> u64 {
        (HEADER + self.bitmap_bytes()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_header_is_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(id) = Sidecar::content(bytes) {
                assert!(id.geometry.chunks() <= crate::MAX_CHUNKS);
            }
        });
    }
}
