//! The record of a download: chunks and nodes that were written, on their way into the sidecar and
//! onto the disk.

use std::mem::take;

use crate::bitmap::Bitmap;
use crate::content::data_file::DataFile;
use crate::content::error::ContentError;
use crate::content::sidecar::{Bits, Sidecar};
use crate::content::syncer::Syncer;
use crate::content::tree::Tree;
use crate::{ContentId, Geometry};

/// The number of bytes after which the sidecar is written.
const BATCH: u64 = 64 << 20;
/// The number of bytes after which a sync begins.
const SYNC: u64 = 32 << 20;

/// The record of a download that does not have its name yet.
pub(super) struct Journal {
    geometry: Geometry,
    sidecar: Sidecar,
    syncer: Syncer,
    /// The number of chunks after which the sidecar is written.
    batch: usize,
    /// Nodes that the sidecar does not have yet.
    new_nodes: Vec<usize>,
    /// Chunks that it does not have yet.
    new_chunks: Vec<u32>,
    /// Chunks that it has, and of which no sync has begun.
    unsynced: Vec<u32>,
    /// Chunks whose sync runs.
    syncing: Vec<u32>,
    synced: Bitmap,
}

impl Journal {
    /// The record of a download of `id`, which has the chunks `have`; `synced` are on the disk.
    ///
    /// # Errors
    /// [`ContentError::File`].
    pub(super) fn new(
        id: ContentId,
        data: DataFile,
        sidecar: Sidecar,
        have: &Bitmap,
        synced: Bitmap,
    ) -> Result<Self, ContentError> {
        let geometry = id.geometry;
        let chunk = u64::from(geometry.chunk_size().bytes());
        let percent = u64::from(geometry.chunks()) / 100;
        Ok(Self {
            geometry,
            sidecar,
            syncer: Syncer::new(data)?,
            batch: percent.min(BATCH / chunk).max(1) as usize,
            new_nodes: Vec::new(),
            new_chunks: Vec::new(),
            unsynced: have.runs().flatten().filter(|at| !synced.contains(*at)).collect(),
            syncing: Vec::new(),
            synced,
        })
    }

    /// Chunks that were written and not synced. They count as synced once [`Self::restart`] has
    /// returned.
    pub(super) fn take_unsynced(&mut self) -> Vec<u32> {
        take(&mut self.unsynced)
    }

    /// After a crash of the system: records that all of `have` are on the disk. The bits of
    /// `changed` may differ from those in the sidecar.
    pub(super) fn restart(&mut self, have: &Bitmap, changed: &[u32]) -> Result<(), ContentError> {
        self.synced = have.clone();
        self.sidecar.store_bits(Bits::Written, have, changed)?;
        self.sidecar.store_bits(Bits::Synced, have, changed)?;
        self.sidecar.store_boot()
    }

    /// Nodes of the tree are known now.
    pub(super) fn add_nodes(&mut self, nodes: Vec<usize>) {
        self.new_nodes.extend(nodes);
    }

    /// A chunk was written. `have` has it.
    pub(super) fn add_chunk(
        &mut self,
        index: u32,
        tree: &Tree,
        have: &mut Bitmap,
    ) -> Result<(), ContentError> {
        self.new_chunks.push(index);
        if self.new_chunks.len() >= self.batch { self.record(tree, have) } else { Ok(()) }
    }

    /// Records and syncs what was written.
    ///
    /// # Errors
    /// [`ContentError::File`]. Chunks that may not be on the disk are then removed from `have`.
    pub(super) fn sync(&mut self, tree: &Tree, have: &mut Bitmap) -> Result<(), ContentError> {
        self.record(tree, have)?;
        self.begin_sync(have)?;
        self.end_sync(have)
    }

    /// Writes into the sidecar what was written into the file, and syncs if that is much.
    fn record(&mut self, tree: &Tree, have: &mut Bitmap) -> Result<(), ContentError> {
        self.sidecar.store_nodes(tree, &mut self.new_nodes)?;
        self.sidecar.store_bits(Bits::Written, have, &self.new_chunks)?;
        self.new_nodes.clear();
        self.unsynced.append(&mut self.new_chunks);
        let bytes = self.unsynced.len() as u64 * u64::from(self.geometry.chunk_size().bytes());
        if bytes >= SYNC { self.begin_sync(have) } else { Ok(()) }
    }

    /// Waits for the sync that runs, and begins the next one.
    fn begin_sync(&mut self, have: &mut Bitmap) -> Result<(), ContentError> {
        self.end_sync(have)?;
        self.syncer.begin()?;
        self.syncing = take(&mut self.unsynced);
        Ok(())
    }

    fn end_sync(&mut self, have: &mut Bitmap) -> Result<(), ContentError> {
        if let Err(error) = self.syncer.wait() {
            // The system has given up writing some of them, and does not say which.
            for index in self.syncing.drain(..).chain(self.unsynced.drain(..)) {
                have.remove(index);
                let _ = self.sidecar.store_bits(Bits::Written, have, &[index]);
            }
            return Err(error);
        }
        for index in &self.syncing {
            self.synced.insert(*index);
        }
        let stored = self.sidecar.store_bits(Bits::Synced, &self.synced, &self.syncing);
        self.syncing.clear();
        stored
    }

    /// The first `moved` bytes are in the files of a folder, and on the disk.
    pub(super) fn store_moved(&self, moved: u64) -> Result<(), ContentError> {
        self.sidecar.store_moved(moved)
    }

    /// Removes the sidecar: the download has its name.
    pub(super) fn remove(&self) -> Result<(), ContentError> {
        self.sidecar.remove()
    }
}
