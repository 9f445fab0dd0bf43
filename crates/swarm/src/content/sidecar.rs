//! The file beside a partial download: which chunks are there, and the hash tree as far as it is
//! known.
//!
//! Its layout: `lvpart2` and a zero (8 bytes), root (32), length (8, big-endian), size of a chunk
//! (4, big-endian), boot (12); then two bitmaps of the chunks, one bit each, lowest first: those
//! that were written, and those that were synced, too; then the nodes of the tree, 32 bytes each,
//! zeros for those that are not known; then, of a folder, how many bytes of the content are in its
//! files (8, big-endian). A bit counts only if the nodes lead from the root to its chunk, so that a
//! file that was written in part does no harm. What was written and not synced is sure to be there
//! until the system ends: *boot* identifies its run.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::bitmap::Bitmap;
use crate::content::error::ContentError;
use crate::content::own_file::open_own;
use crate::content::tree::{ChunkHash, Tree};
use crate::{ChunkSize, ContentId, Geometry};

const MAGIC: &[u8; 8] = b"lvpart2\0";
const HEADER: usize = 64;
/// Where the run of the system is.
const BOOT: u64 = 52;

/// An open sidecar.
pub(super) struct Sidecar {
    id: ContentId,
    file: File,
    path: PathBuf,
}

/// One of the two bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Written,
    Synced,
}

/// What a sidecar says.
pub(super) struct Loaded {
    pub(super) tree: Tree,
    pub(super) written: Bitmap,
    pub(super) synced: Bitmap,
    /// Whether the system still runs in which chunks were written.
    pub(super) is_same_boot: bool,
    /// The number of bytes of the content that are in the files of its folder, and no longer in the
    /// download.
    pub(super) moved: u64,
}

impl Sidecar {
    /// Opens the sidecar at `path` of a download of `id`. A new download gets one; None if one that
    /// is not new has none.
    ///
    /// # Errors
    /// [`ContentError::OtherDownload`], [`ContentError::Foreign`], [`ContentError::File`].
    pub(super) fn open(
        path: PathBuf,
        id: ContentId,
        is_new: bool,
    ) -> Result<Option<Self>, ContentError> {
        if !is_new && !path.exists() {
            return Ok(None);
        }
        let sidecar = Self { id, file: open_own(&path)?, path };
        let mut header = Vec::new();
        let read = (&sidecar.file).take(HEADER as u64).read_to_end(&mut header);
        read.map_err(|error| sidecar.failed(error))?;
        match Self::content(&header) {
            Some(found) if found == id => {}
            None if header.iter().all(|byte| *byte == 0) => {
                if !is_new {
                    return Ok(None);
                }
                sidecar.create().map_err(|error| sidecar.failed(error))?;
            }
            _ => return Err(ContentError::OtherDownload(sidecar.path)),
        }
        Ok(Some(sidecar))
    }

    /// Removes its name.
    pub(super) fn remove(&self) -> Result<(), ContentError> {
        fs::remove_file(&self.path).map_err(|error| self.failed(error))
    }

    /// Writes the header of a new file; all else is zeros.
    fn create(&self) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..40].copy_from_slice(&self.id.root);
        header[40..48].copy_from_slice(&self.id.geometry.length().to_be_bytes());
        header[48..52].copy_from_slice(&self.id.geometry.chunk_size().bytes().to_be_bytes());
        let nodes = Tree::new(self.id).nodes().len();
        self.file.set_len(self.nodes_start() + nodes as u64 * 32 + 8)?;
        self.file.write_all_at(&header, 0)
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
    pub(super) fn load(&self) -> Result<Loaded, ContentError> {
        self.read().map_err(|error| self.failed(error))
    }

    fn read(&self) -> io::Result<Loaded> {
        let [written, synced] = [Bits::Written, Bits::Synced].map(|bits| self.read_bits(bits));
        let written = written?;
        let synced = synced?;
        // A new download takes memory for what comes, not for what a ticket says.
        let tree = match written.iter().all(|byte| *byte == 0) {
            true => Tree::new(self.id),
            false => self.load_tree()?,
        };
        let written = self.proved(&written, &tree);
        let synced = self.proved(&synced, &tree);
        let mut boot = [0; 12];
        self.file.read_exact_at(&mut boot, BOOT)?;
        let is_same_boot = current_boot().is_some_and(|current| current == boot);
        Ok(Loaded { tree, written, synced, is_same_boot, moved: self.load_moved()? })
    }

    /// Records that the system runs in which from now on chunks are written. All that were written
    /// must be synced. The sidecar is synced before.
    pub(super) fn store_boot(&self) -> Result<(), ContentError> {
        let synced = self.file.sync_data();
        let boot = || self.file.write_all_at(&current_boot().unwrap_or_default(), BOOT);
        synced.and_then(|()| boot()).map_err(|error| self.failed(error))
    }

    /// Writes nodes of the tree. They precede the bits of the chunks that they prove.
    pub(super) fn store_nodes(&self, tree: &Tree, nodes: &mut [usize]) -> Result<(), ContentError> {
        nodes.sort_unstable();
        for run in nodes.chunk_by(|one, next| *next == one + 1) {
            let values = &tree.nodes()[run[0]..run[0] + run.len()];
            self.write(values.as_flattened(), self.nodes_start() + run[0] as u64 * 32)?;
        }
        Ok(())
    }

    /// Writes the bits of `chunks` as they are in `all`.
    pub(super) fn store_bits(
        &self,
        bits: Bits,
        all: &Bitmap,
        chunks: &[u32],
    ) -> Result<(), ContentError> {
        let mut positions: Vec<u32> = chunks.iter().map(|index| index / 8).collect();
        positions.sort_unstable();
        positions.dedup();
        for run in positions.chunk_by(|one, next| *next == one + 1) {
            let byte = |position: &u32| {
                let bit = |bit| u8::from(all.contains(position * 8 + bit)) << bit;
                (0..8).map(bit).fold(0, |all, one| all | one)
            };
            let bytes: Vec<u8> = run.iter().map(byte).collect();
            self.write(&bytes, self.bits_start(bits) + u64::from(run[0]))?;
        }
        Ok(())
    }

    /// Stores how many bytes are in the files of the folder. It is on the disk when this returns.
    pub(super) fn store_moved(&self, moved: u64) -> Result<(), ContentError> {
        self.write(&moved.to_be_bytes(), self.moved_at())?;
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    fn write(&self, bytes: &[u8], start: u64) -> Result<(), ContentError> {
        self.file.write_all_at(bytes, start).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> ContentError {
        ContentError::file(&self.path)(error)
    }

    fn load_moved(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, self.moved_at()) {
            // Made by an earlier version.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read.map(|()| u64::from_be_bytes(bytes).min(self.id.geometry.length())),
        }
    }

    fn load_tree(&self) -> io::Result<Tree> {
        let mut nodes: Vec<ChunkHash> = vec![[0; 32]; Tree::new(self.id).nodes().len()];
        self.file.read_exact_at(nodes.as_flattened_mut(), self.nodes_start())?;
        Ok(Tree::restore(self.id, nodes))
    }

    fn read_bits(&self, bits: Bits) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bitmap_bytes()];
        self.file.read_exact_at(&mut bytes, self.bits_start(bits))?;
        Ok(bytes)
    }

    /// The marked chunks that the tree proves.
    fn proved(&self, bytes: &[u8], tree: &Tree) -> Bitmap {
        let chunks = self.id.geometry.chunks();
        let mut found = Bitmap::new(chunks);
        for index in 0..chunks {
            let marked = bytes[index as usize / 8] >> (index % 8) & 1 == 1;
            if marked && (chunks == 1 || tree.missing_levels(index) == 0) {
                found.insert(index);
            }
        }
        found
    }

    fn bitmap_bytes(&self) -> usize {
        self.id.geometry.chunks().div_ceil(8) as usize
    }

    fn bits_start(&self, bits: Bits) -> u64 {
        let before = if bits == Bits::Synced { self.bitmap_bytes() } else { 0 };
        (HEADER + before) as u64
    }

    fn moved_at(&self) -> u64 {
        self.nodes_start() + Tree::new(self.id).nodes().len() as u64 * 32
    }

    fn nodes_start(&self) -> u64 {
        (HEADER + 2 * self.bitmap_bytes()) as u64
    }
}

/// Identifies the run of the system, which ends with a crash or a restart; None if it does not
/// tell.
fn current_boot() -> Option<[u8; 12]> {
    let id = fs::read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())?;
    blake3::hash(&id).as_bytes().first_chunk().copied()
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
