//! A download on disk: `NAME.part` with the bytes, and `NAME.part.levada` with what is known of
//! them.
//!
//! The sidecar is written in batches of at most 1 % of the content or 64 MiB: that much is received
//! again after the process was killed, and nothing that was verified is hashed again. Data is
//! synced in larger batches, while more is written. After the system has crashed, chunks that were
//! not synced are hashed again, and those that are wrong are received again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bitmap::Bitmap;
use crate::content::beside::beside;
use crate::content::data_file::DataFile;
use crate::content::error::ContentError;
use crate::content::folder::Folder;
use crate::content::journal::Journal;
use crate::content::naming::{name_file, sync_name};
use crate::content::sidecar::Sidecar;
use crate::content::space;
use crate::content::tree::{ChunkHash, Tree, chunk_hash};
use crate::{ContentId, Geometry};

/// A download that continues where it has stopped.
pub struct PartialFile {
    target: PathBuf,
    data: DataFile,
    tree: Tree,
    have: Bitmap,
    /// None once the file has its name, and all bytes: nothing is written then.
    journal: Option<Journal>,
    /// True if a folder is downloaded.
    is_folder: bool,
    /// The folder that has the bytes before `moved`, once they are moved.
    folder: Option<Arc<Folder>>,
    moved: u64,
}

impl PartialFile {
    /// Begins the download of `id` to `target`, or resumes it. The file is locked against other
    /// processes until it is dropped.
    ///
    /// # Errors
    /// [`ContentError::Exists`], [`ContentError::OtherDownload`], [`ContentError::Foreign`],
    /// [`ContentError::InUse`], [`ContentError::Impossible`], [`ContentError::Space`],
    /// [`ContentError::File`].
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
        let (data, is_new) = DataFile::lock(beside(target, ".part"))?;
        let sidecar = Sidecar::open(beside(target, ".part.levada"), id, is_new)?;
        let sidecar = sidecar.ok_or_else(|| ContentError::Foreign(data.path().to_owned()))?;
        let loaded = sidecar.load()?;
        let length = id.geometry.length();
        data.set_length(length)?;
        space::check(data.file(), data.path(), length, is_folder.then_some(loaded.moved))?;
        let have = loaded.written;
        let journal = Journal::new(id, data.clone(), sidecar, &have, loaded.synced)?;
        let mut file = Self {
            target: target.to_owned(),
            data,
            tree: loaded.tree,
            have,
            journal: Some(journal),
            is_folder,
            folder: None,
            moved: loaded.moved,
        };
        if !loaded.is_same_boot {
            file.hash_unsynced()?;
        }
        Ok(file)
    }

    /// After a crash of the system: keeps those chunks that were not synced and are right all the
    /// same.
    fn hash_unsynced(&mut self) -> Result<(), ContentError> {
        let geometry = self.geometry();
        let doubtful = self.journal.as_mut().map(Journal::take_unsynced).unwrap_or_default();
        for index in &doubtful {
            let (_, bytes) = self.read(*index, 0)?;
            let hash = chunk_hash(geometry, *index, &bytes);
            if !hash.is_some_and(|hash| self.tree.has(*index, hash)) {
                self.have.remove(*index);
            }
        }
        self.data.sync()?;
        match &mut self.journal {
            Some(journal) => journal.restart(&self.have, &doubtful),
            None => Ok(()),
        }
    }

    /// A download that is complete already, to provide it: reads and hashes the file, which must
    /// not change from then on.
    ///
    /// # Errors
    /// [`ContentError::Changed`] if it is not the content `id`; [`ContentError::File`].
    pub fn complete(path: &Path, id: ContentId) -> Result<Self, ContentError> {
        let data = DataFile::open(path)?;
        let length = data.length()?;
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
            data.read(bytes, range.start)?;
            hashes.extend(chunk_hash(id.geometry, index, bytes));
            have.insert(index);
        }
        let tree = Tree::build(id.geometry, hashes);
        if tree.id() != id {
            return Err(changed());
        }
        Ok(Self::finished(data, tree, have))
    }

    /// A download of `id` that verifies what comes and writes nothing: `path` has the content
    /// already, and chunks that have come are read from there. For measurements with more peers
    /// than the disk has room for.
    ///
    /// # Errors
    /// [`ContentError::File`].
    pub fn verify_only(path: &Path, id: ContentId) -> Result<Self, ContentError> {
        let data = DataFile::open(path)?;
        Ok(Self::finished(data, Tree::new(id), Bitmap::new(id.geometry.chunks())))
    }

    /// A file that has its name and all bytes: nothing is written, neither to it nor to a sidecar.
    fn finished(data: DataFile, tree: Tree, have: Bitmap) -> Self {
        Self {
            target: data.path().to_owned(),
            data,
            tree,
            have,
            journal: None,
            is_folder: false,
            folder: None,
            moved: 0,
        }
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

    /// Verifies a chunk, whose value `hash` is computed by
    /// [`chunk_hash`](crate::content::chunk_hash), and writes it. A chunk that is there is not
    /// written again.
    ///
    /// # Errors
    /// [`ContentError::BadChunk`]; otherwise [`ContentError::File`], and the chunk counts as
    /// missing.
    pub fn write(
        &mut self,
        index: u32,
        hash: ChunkHash,
        siblings: &[ChunkHash],
        bytes: &[u8],
    ) -> Result<(), ContentError> {
        let nodes = self.tree.insert(index, hash, siblings)?;
        let Some(journal) = &mut self.journal else {
            self.have.insert(index);
            return Ok(());
        };
        journal.add_nodes(nodes);
        if self.have.contains(index) {
            return Ok(());
        }
        self.data.write(bytes, self.tree.id().geometry.range(index).start)?;
        self.have.insert(index);
        journal.add_chunk(index, &self.tree, &mut self.have)
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
        self.data.read(kept, range.start + in_files as u64)?;
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
        match &mut self.journal {
            Some(journal) => journal.sync(&self.tree, &mut self.have),
            None => self.data.sync(),
        }
    }

    /// True if a folder is downloaded.
    pub(super) fn is_folder(&self) -> bool {
        self.is_folder
    }

    pub(super) fn id(&self) -> ContentId {
        self.tree.id()
    }

    pub(super) fn data(&self) -> Arc<File> {
        self.data.file().clone()
    }

    pub(super) fn data_path(&self) -> &Path {
        self.data.path()
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
    /// [`ContentError::File`] if the sidecar does not say so: the bytes in the download must then
    /// stay.
    pub(super) fn set_moved(&mut self, moved: u64) -> Result<(), ContentError> {
        if let Some(journal) = &self.journal {
            journal.store_moved(moved)?;
        }
        self.moved = moved;
        Ok(())
    }

    /// The folder has its name, and all bytes.
    ///
    /// # Errors
    /// [`ContentError::File`] if what is left of the download cannot be removed.
    pub(super) fn is_unpacked(&mut self) -> Result<(), ContentError> {
        let journal = self.journal.take();
        self.data.remove()?;
        journal.iter().try_for_each(Journal::remove)?;
        sync_name(&self.target)
    }

    /// Gives a complete file its name, and removes the sidecar. Chunks can still be read.
    ///
    /// # Errors
    /// [`ContentError::Missing`] if a chunk is missing, [`ContentError::Exists`] if the target was
    /// made meanwhile, [`ContentError::Foreign`] if another file has taken the place of
    /// `NAME.part`, [`ContentError::File`].
    pub fn finish(&mut self) -> Result<(), ContentError> {
        if let Some(missing) = self.have.next_missing(0) {
            return Err(ContentError::Missing(missing));
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.sync(&self.tree, &mut self.have)?;
        name_file(self.data.file(), self.data.path(), &self.target)?;
        journal.remove()?;
        sync_name(&self.target)?;
        self.data.set_path(&self.target);
        self.journal = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
