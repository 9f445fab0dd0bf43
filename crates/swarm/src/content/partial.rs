//! A download on disk: `NAME.part` with the bytes, and `NAME.part.levada` with what is known of them.
//!
//! The sidecar is written in batches of at most 1 % of the content or 64 MiB: that much is received again after the process was killed, and
//! nothing that was verified is hashed again. Data is synced in larger batches, while more is written. After the system has crashed, chunks
//! that were not synced are hashed again, and those that are wrong are received again.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bitmap::Bitmap;
use crate::content::beside::beside;
use crate::content::error::ContentError;
use crate::content::folder::Folder;
use crate::content::naming::{name_file, sync_name};
use crate::content::own_file::open_own;
use crate::content::sidecar::{Bits, Sidecar};
use crate::content::space;
use crate::content::syncer::Syncer;
use crate::content::tree::{ChunkHash, Tree, chunk_hash};
use crate::{ContentId, Geometry};

/// The most bytes that are written before the sidecar says so.
const BATCH: u64 = 64 << 20;
/// So many bytes are synced at a time.
const SYNC: u64 = 32 << 20;

/// A download that goes on where it has stopped.
pub struct PartialFile {
    target: PathBuf,
    data_path: PathBuf,
    data: Arc<File>,
    syncer: Syncer,
    sidecar: Sidecar,
    sidecar_path: PathBuf,
    sidecar_file: File,
    tree: Tree,
    have: Bitmap,
    /// Nodes and chunks that the sidecar does not have yet.
    new_nodes: Vec<usize>,
    new_chunks: Vec<u32>,
    batch: usize,
    /// Chunks that the sidecar has, and of which no sync has begun; and those whose sync runs.
    unsynced: Vec<u32>,
    syncing: Vec<u32>,
    synced: Bitmap,
    /// The file has its name, and all bytes.
    is_finished: bool,
    /// The content is that of a folder.
    is_folder: bool,
    /// Where bytes before `moved` are, once they are moved.
    folder: Option<Arc<Folder>>,
    moved: u64,
}

impl PartialFile {
    /// Begins the download of `id` to `target`, or resumes it. The file is locked against other processes until it is dropped.
    ///
    /// # Errors
    /// [`ContentError::Exists`], [`ContentError::OtherDownload`], [`ContentError::Foreign`], [`ContentError::InUse`],
    /// [`ContentError::Impossible`], [`ContentError::Space`], [`ContentError::File`].
    pub fn open(target: &Path, id: ContentId) -> Result<Self, ContentError> {
        Self::open_kind(target, id, false)
    }

    /// As [`Self::open`], for the content of a folder, which [`finish`](super::finish) unpacks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_folder(target: &Path, id: ContentId) -> Result<Self, ContentError> {
        Self::open_kind(target, id, true)
    }

    fn open_kind(target: &Path, id: ContentId, is_folder: bool) -> Result<Self, ContentError> {
        // Content without chunks proves itself.
        if id.geometry.length() == 0 && id != Tree::build(id.geometry, []).id() {
            return Err(ContentError::Impossible);
        }
        if fs::symlink_metadata(target).is_ok() {
            return Err(ContentError::Exists(target.to_owned()));
        }
        let data_path = beside(target, ".part");
        let sidecar_path = beside(target, ".part.levada");
        let data = open_own(&data_path)?;
        let is_new = data.metadata().map_err(ContentError::file(&data_path))?.len() == 0;
        match data.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(ContentError::InUse(data_path)),
            Err(TryLockError::Error(error)) => return Err(ContentError::file(&data_path)(error)),
            Ok(()) => {}
        }
        if !is_new && !sidecar_path.exists() {
            return Err(ContentError::Foreign(data_path));
        }
        let sidecar_file = open_own(&sidecar_path)?;
        let sidecar = Sidecar::new(id);
        let mut header = Vec::new();
        let failed = |error| ContentError::file(&sidecar_path)(error);
        (&sidecar_file).take(64).read_to_end(&mut header).map_err(failed)?;
        match Sidecar::content(&header) {
            Some(other) if other != id => return Err(ContentError::OtherDownload(sidecar_path)),
            Some(_) => {}
            None if header.iter().any(|byte| *byte != 0) => {
                return Err(ContentError::OtherDownload(sidecar_path));
            }
            None if !is_new => return Err(ContentError::Foreign(data_path)),
            None => sidecar.create(&sidecar_file).map_err(failed)?,
        }
        let loaded = sidecar.load(&sidecar_file).map_err(failed)?;
        let moved = sidecar.load_moved(&sidecar_file).map_err(failed)?;
        let length = id.geometry.length();
        data.set_len(length).map_err(ContentError::file(&data_path))?;
        space::check(&data, &data_path, length, is_folder.then_some(moved))?;
        let chunk = u64::from(id.geometry.chunk_size().bytes());
        let percent = u64::from(id.geometry.chunks()) / 100;
        let data = Arc::new(data);
        let syncer = Syncer::new(data.clone()).map_err(ContentError::file(&data_path))?;
        let is_same_boot = loaded.is_same_boot;
        let mut file = Self {
            target: target.to_owned(),
            data_path,
            data,
            syncer,
            sidecar,
            sidecar_path,
            sidecar_file,
            tree: loaded.tree,
            have: loaded.written,
            new_nodes: Vec::new(),
            new_chunks: Vec::new(),
            batch: percent.min(BATCH / chunk).max(1) as usize,
            unsynced: Vec::new(),
            syncing: Vec::new(),
            synced: loaded.synced,
            is_finished: false,
            is_folder,
            folder: None,
            moved,
        };
        file.unsynced =
            file.have.runs().flatten().filter(|at| !file.synced.contains(*at)).collect();
        if !is_same_boot {
            file.hash_unsynced()?;
        }
        Ok(file)
    }

    /// After a crash of the system: keeps those chunks that were not synced and are right all the same.
    fn hash_unsynced(&mut self) -> Result<(), ContentError> {
        let geometry = self.geometry();
        let doubtful = std::mem::take(&mut self.unsynced);
        for index in &doubtful {
            let (_, bytes) = self.read(*index, 0)?;
            let hash = chunk_hash(geometry, *index, &bytes);
            if !hash.is_some_and(|hash| self.tree.has(*index, hash)) {
                self.have.remove(*index);
            }
        }
        self.data.sync_data().map_err(ContentError::file(&self.data_path))?;
        self.synced = self.have.clone();
        let file = &self.sidecar_file;
        let sidecar = &self.sidecar;
        let store = |bits| sidecar.store_bits(file, bits, &self.have, &doubtful);
        let stored = store(Bits::Written).and_then(|()| store(Bits::Synced));
        let stored = stored.and_then(|()| file.sync_data()).and_then(|()| sidecar.store_boot(file));
        stored.map_err(ContentError::file(&self.sidecar_path))
    }

    /// A download that is complete already, to provide it: reads and hashes the file, which must not change from then on.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if it is not the content `id`; [`ContentError::File`].
    pub fn complete(path: &Path, id: ContentId) -> Result<Self, ContentError> {
        let data = File::open(path).map_err(ContentError::file(path))?;
        let length = data.metadata().map_err(ContentError::file(path))?.len();
        let changed = || ContentError::Changed(path.to_owned());
        if length != id.geometry.length() {
            return Err(changed());
        }
        let mut bytes = vec![0; id.geometry.chunk_size().bytes() as usize];
        let mut hashes = Vec::with_capacity(id.geometry.chunks() as usize);
        let mut have = Bitmap::new(id.geometry.chunks());
        for index in 0..id.geometry.chunks() {
            let range = id.geometry.range(index);
            let bytes = &mut bytes[..(range.end - range.start) as usize];
            data.read_exact_at(bytes, range.start).map_err(ContentError::file(path))?;
            hashes.extend(chunk_hash(id.geometry, index, bytes));
            have.insert(index);
        }
        let tree = Tree::build(id.geometry, hashes);
        if tree.id() != id {
            return Err(changed());
        }
        Self::written(path, data, tree, have)
    }

    /// A download of `id` that verifies what comes and writes nothing: `path` has the content already, and chunks that have come are read from
    /// there. For measurements with more peers than the disk has room for.
    ///
    /// # Errors
    /// [`ContentError::File`].
    pub fn verify_only(path: &Path, id: ContentId) -> Result<Self, ContentError> {
        let data = File::open(path).map_err(ContentError::file(path))?;
        Self::written(path, data, Tree::new(id), Bitmap::new(id.geometry.chunks()))
    }

    /// A file that has its name and all bytes: nothing is written, neither to it nor to a sidecar.
    fn written(path: &Path, data: File, tree: Tree, have: Bitmap) -> Result<Self, ContentError> {
        let sidecar_file = data.try_clone().map_err(ContentError::file(path))?;
        let data = Arc::new(data);
        let syncer = Syncer::new(data.clone()).map_err(ContentError::file(path))?;
        Ok(Self {
            target: path.to_owned(),
            data_path: path.to_owned(),
            data,
            syncer,
            sidecar: Sidecar::new(tree.id()),
            sidecar_path: path.to_owned(),
            sidecar_file,
            tree,
            synced: have.clone(),
            have,
            new_nodes: Vec::new(),
            new_chunks: Vec::new(),
            batch: 1,
            unsynced: Vec::new(),
            syncing: Vec::new(),
            is_finished: true,
            is_folder: false,
            folder: None,
            moved: 0,
        })
    }

    /// How the content is divided.
    pub fn geometry(&self) -> Geometry {
        self.tree.id().geometry
    }

    /// The chunks that are there.
    pub fn have(&self) -> &Bitmap {
        &self.have
    }

    /// How many siblings' levels a proof of chunk `index` needs ([`Tree::missing_levels`]).
    pub fn missing_levels(&self, index: u32) -> u8 {
        self.tree.missing_levels(index)
    }

    /// Verifies a chunk, whose value `hash` is computed by [`chunk_hash`](crate::content::chunk_hash), and writes it. A chunk that is there is not
    /// written again.
    ///
    /// # Errors
    /// [`ContentError::BadChunk`]; otherwise [`ContentError::File`], and the chunk counts as missing.
    pub fn write(
        &mut self,
        index: u32,
        hash: ChunkHash,
        siblings: &[ChunkHash],
        bytes: &[u8],
    ) -> Result<(), ContentError> {
        let nodes = self.tree.insert(index, hash, siblings)?;
        if self.is_finished {
            self.have.insert(index);
            return Ok(());
        }
        self.new_nodes.extend(nodes);
        if self.have.contains(index) {
            return Ok(());
        }
        let start = self.geometry().range(index).start;
        self.data.write_all_at(bytes, start).map_err(ContentError::file(&self.data_path))?;
        self.have.insert(index);
        self.new_chunks.push(index);
        if self.new_chunks.len() >= self.batch { self.record() } else { Ok(()) }
    }

    /// Reads a chunk, with the siblings of `levels` levels, to pass it on.
    ///
    /// # Errors
    /// [`ContentError::Missing`], [`ContentError::File`].
    pub fn read(&self, index: u32, levels: u8) -> Result<(Vec<ChunkHash>, Vec<u8>), ContentError> {
        let siblings = self.tree.siblings(index, levels).filter(|_| self.have.contains(index));
        let siblings = siblings.ok_or(ContentError::Missing(index))?;
        let range = self.geometry().range(index);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let in_files = (self.moved.clamp(range.start, range.end) - range.start) as usize;
        let (moved, kept) = bytes.split_at_mut(in_files);
        if !moved.is_empty() {
            let folder = self.folder.as_ref().ok_or(ContentError::Missing(index))?;
            folder.read(range.start, moved).map_err(ContentError::file(&self.target))?;
        }
        self.data
            .read_exact_at(kept, range.start + in_files as u64)
            .map_err(ContentError::file(&self.data_path))?;
        // Who may write to the folder may have changed its files.
        if in_files > 0 {
            let hash = chunk_hash(self.geometry(), index, &bytes);
            hash.filter(|hash| self.tree.has(index, *hash)).ok_or(ContentError::Missing(index))?;
        }
        Ok((siblings, bytes))
    }

    /// Records and syncs what was written.
    ///
    /// # Errors
    /// [`ContentError::File`]. Chunks that may not be on the disk then count as missing.
    pub fn sync(&mut self) -> Result<(), ContentError> {
        self.record()?;
        self.begin_sync()?;
        self.end_sync()
    }

    /// Writes into the sidecar what was written into the file, and syncs if that is much.
    fn record(&mut self) -> Result<(), ContentError> {
        let failed = ContentError::file(&self.sidecar_path);
        let sidecar = &self.sidecar;
        let file = &self.sidecar_file;
        sidecar
            .store_nodes(file, &self.tree, &mut self.new_nodes)
            .and_then(|()| sidecar.store_bits(file, Bits::Written, &self.have, &self.new_chunks))
            .map_err(failed)?;
        self.new_nodes.clear();
        self.unsynced.append(&mut self.new_chunks);
        let bytes = self.unsynced.len() as u64 * u64::from(self.geometry().chunk_size().bytes());
        if bytes >= SYNC { self.begin_sync() } else { Ok(()) }
    }

    /// Waits for the sync that runs, and begins the next one.
    fn begin_sync(&mut self) -> Result<(), ContentError> {
        self.end_sync()?;
        self.syncer.begin().map_err(ContentError::file(&self.data_path))?;
        self.syncing = std::mem::take(&mut self.unsynced);
        Ok(())
    }

    fn end_sync(&mut self) -> Result<(), ContentError> {
        if let Err(error) = self.syncer.wait() {
            // The system has given up to write some of them, and does not say which.
            for index in self.syncing.drain(..).chain(self.unsynced.drain(..)) {
                self.have.remove(index);
                let _ = self.sidecar.store_bits(
                    &self.sidecar_file,
                    Bits::Written,
                    &self.have,
                    &[index],
                );
            }
            return Err(ContentError::file(&self.data_path)(error));
        }
        for index in &self.syncing {
            self.synced.insert(*index);
        }
        let stored =
            self.sidecar.store_bits(&self.sidecar_file, Bits::Synced, &self.synced, &self.syncing);
        self.syncing.clear();
        stored.map_err(ContentError::file(&self.sidecar_path))
    }

    /// Whether the content is that of a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.is_folder
    }

    pub(super) fn id(&self) -> ContentId {
        self.tree.id()
    }

    pub(super) fn data(&self) -> Arc<File> {
        self.data.clone()
    }

    pub(super) fn data_path(&self) -> &Path {
        &self.data_path
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// How many bytes, from the beginning, are in the files of the folder.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// From now on, the first bytes are read from the folder.
    pub(super) fn read_from(&mut self, folder: Arc<Folder>) {
        self.folder = Some(folder);
    }

    /// The first `moved` bytes are in the files of the folder, and on the disk.
    ///
    /// # Errors
    /// [`ContentError::File`] if the sidecar does not say so: the bytes in the download must then stay.
    pub(super) fn set_moved(&mut self, moved: u64) -> Result<(), ContentError> {
        let stored = self.sidecar.store_moved(&self.sidecar_file, moved);
        stored.map_err(ContentError::file(&self.sidecar_path))?;
        self.moved = moved;
        Ok(())
    }

    /// The folder has its name, and all bytes.
    ///
    /// # Errors
    /// [`ContentError::File`] if what is left of the download cannot be removed.
    pub(super) fn is_unpacked(&mut self) -> Result<(), ContentError> {
        self.is_finished = true;
        fs::remove_file(&self.data_path).map_err(ContentError::file(&self.data_path))?;
        fs::remove_file(&self.sidecar_path).map_err(ContentError::file(&self.sidecar_path))?;
        sync_name(&self.target)
    }

    /// Gives a complete file its name, and removes the sidecar. Chunks can still be read.
    ///
    /// # Errors
    /// [`ContentError::Missing`] if a chunk is missing, [`ContentError::Exists`] if the target was made meanwhile,
    /// [`ContentError::Foreign`] if another file has taken the place of `NAME.part`, [`ContentError::File`].
    pub fn finish(&mut self) -> Result<(), ContentError> {
        if let Some(missing) = self.have.next_missing(0) {
            return Err(ContentError::Missing(missing));
        }
        if self.is_finished {
            return Ok(());
        }
        self.sync()?;
        name_file(&self.data, &self.data_path, &self.target)?;
        fs::remove_file(&self.sidecar_path).map_err(ContentError::file(&self.sidecar_path))?;
        sync_name(&self.target)?;
        self.data_path.clone_from(&self.target);
        self.is_finished = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
