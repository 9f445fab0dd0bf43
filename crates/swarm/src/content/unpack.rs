//! Moves the content of a folder from its download into the folder's files.
//!
//! It is done in steps. A step is written and synced, the sidecar says so, and the download then
//! gives its bytes back to the disk. So a folder needs no more room than its size and one step, and
//! after any interruption the next run goes on where this one has stopped.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::syncfs;
use rustix::process::geteuid;

use crate::content::attributes;
use crate::content::beside::beside;
use crate::content::error::ContentError;
use crate::content::folder::Folder;
use crate::content::manifest::{Entry, Kind};
use crate::content::naming::name_folder;
use crate::content::own_file::open_own;
use crate::content::partial::PartialFile;
use crate::content::space;

/// Up to so many files are synced one by one; with more, the whole file system is.
const FEW: usize = 16;

/// Gives a complete download its name: a file as [`PartialFile::finish`] does, and a folder with
/// all its files, which are moved out of the download. Chunks can be read meanwhile, and then from
/// the target. Returns the number of paths with replaced characters
/// ([`Manifest::with_printable_paths`](crate::content::Manifest::with_printable_paths)). It blocks
/// for as long as that takes.
///
/// # Errors
/// As for [`PartialFile::finish`], and [`ContentError::Manifest`]. Nothing that was received is
/// lost: the next call goes on.
pub fn finish(file: &Mutex<PartialFile>) -> Result<usize, ContentError> {
    if !lock(file).is_folder() {
        return lock(file).finish().map(|()| 0);
    }
    let mut unpacking = Unpacking::begin(file)?;
    unpacking.move_all()?;
    unpacking.complete()?;
    Ok(unpacking.folder.changed())
}

struct Unpacking<'a> {
    file: &'a Mutex<PartialFile>,
    content: Arc<File>,
    folder: Arc<Folder>,
    /// The folder, until it gets its name.
    path: PathBuf,
    target: PathBuf,
    length: u64,
    /// All bytes before this are in files.
    moved: u64,
    /// The files of a step, unless they are more than [`FEW`]; and its bytes.
    written: Vec<File>,
    are_few: bool,
    bytes: u64,
    /// The most of them.
    step: u64,
    /// The folder that was made or used last.
    parent: PathBuf,
}

impl<'a> Unpacking<'a> {
    fn begin(file: &'a Mutex<PartialFile>) -> Result<Self, ContentError> {
        let mut partial = lock(file);
        partial.sync()?;
        let content = partial.data();
        let target = partial.target().to_owned();
        if fs::symlink_metadata(&target).is_ok() {
            return Err(ContentError::Exists(target));
        }
        let id = partial.id();
        let name: String = id.root[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = beside(&target, &format!(".unpacking-{name}"));
        make_own_folder(&path)?;
        let length = id.geometry.length();
        let folder = Folder::open(&path, &content, partial.data_path(), length)?;
        let folder = Arc::new(folder);
        let moved = partial.moved().max(folder.start());
        partial.read_from(folder.clone());
        drop(partial);
        Ok(Self {
            file,
            content,
            folder,
            parent: path.clone(),
            path,
            target,
            length,
            moved,
            written: Vec::new(),
            are_few: true,
            bytes: 0,
            step: space::step(length),
        })
    }

    fn move_all(&mut self) -> Result<(), ContentError> {
        let folder = self.folder.clone();
        // When all bytes are in files, so are the empty files behind them.
        if lock(self.file).moved() < self.length {
            for (entry, start) in folder.entries_from(self.moved) {
                let path = self.path.join(&entry.path);
                self.make(entry, start, &path).map_err(|error| match error {
                    MoveError::Written(error) => ContentError::file(&path)(error),
                    MoveError::Content(error) => error,
                })?;
            }
            self.end_step()?;
        }
        Ok(())
    }

    /// Makes a folder, or writes the rest of a file, whose bytes begin at `start` of the content.
    /// Links come last, so that nothing is written through them.
    fn make(&mut self, entry: &Entry, start: u64, path: &Path) -> Result<(), MoveError> {
        match entry.kind {
            Kind::File(length) => self.move_file(start..start + length, path),
            Kind::Folder => Ok(fs::create_dir_all(path)?),
            Kind::Link(_) => Ok(()),
        }
    }

    fn move_file(&mut self, place: Range<u64>, path: &Path) -> Result<(), MoveError> {
        self.make_parent(path)?;
        let mut file = open_own(path)?;
        while self.moved < place.end {
            let length = (place.end - self.moved).min(self.step - self.bytes);
            file.seek(SeekFrom::Start(self.moved - place.start))?;
            (&*self.content).seek(SeekFrom::Start(self.moved))?;
            let copied = io::copy(&mut io::Read::take(&*self.content, length), &mut file)?;
            if copied != length {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.moved += length;
            self.bytes += length;
            if self.bytes >= self.step {
                self.written.push(file.try_clone()?);
                self.end_step()?;
            }
        }
        if self.written.len() < FEW {
            self.written.push(file)
        } else {
            self.are_few = false
        }
        Ok(())
    }

    /// Makes the folder of a file. The next file is mostly in the same one.
    fn make_parent(&mut self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent().filter(|parent| *parent != self.parent) else {
            return Ok(());
        };
        fs::create_dir_all(parent)?;
        parent.clone_into(&mut self.parent);
        Ok(())
    }

    /// What was written is on the disk, and the sidecar says so; then the download no longer needs
    /// it.
    fn end_step(&mut self) -> Result<(), ContentError> {
        match self.are_few {
            true => self.written.iter().try_for_each(File::sync_all),
            false => syncfs(self.folder.handle()).map_err(io::Error::from),
        }
        .map_err(ContentError::file(&self.path))?;
        self.written.clear();
        (self.are_few, self.bytes) = (true, 0);
        let mut partial = lock(self.file);
        let from = partial.moved().max(self.folder.start());
        partial.set_moved(self.moved)?;
        if self.moved > from {
            // Where that does not work, the folder takes twice its size.
            let _ = space::give_back(&self.content, from, self.moved - from);
        }
        Ok(())
    }

    /// The folder gets its name.
    fn complete(&mut self) -> Result<(), ContentError> {
        let mode = attributes::set_all(&self.path, self.folder.entries())?;
        syncfs(self.folder.handle())
            .map_err(|error| ContentError::file(&self.path)(error.into()))?;
        name_folder(&self.path, &self.target)?;
        let mode = fs::Permissions::from_mode(mode);
        self.folder.handle().set_permissions(mode).map_err(ContentError::file(&self.target))?;
        lock(self.file).is_unpacked()
    }
}

/// Why a file was not written.
enum MoveError {
    Written(io::Error),
    Content(ContentError),
}

impl From<io::Error> for MoveError {
    fn from(error: io::Error) -> Self {
        Self::Written(error)
    }
}

impl From<ContentError> for MoveError {
    fn from(error: ContentError) -> Self {
        Self::Content(error)
    }
}

/// Makes the folder to unpack to, or takes the one of an earlier run. Others may not even look into
/// it before it has its name, so that no path in it leads elsewhere.
fn make_own_folder(path: &Path) -> Result<(), ContentError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(ContentError::file(path)),
    }
    let metadata = fs::symlink_metadata(path).map_err(ContentError::file(path))?;
    let is_own = metadata.is_dir() && metadata.uid() == geteuid().as_raw();
    if !is_own || metadata.mode() & 0o022 != 0 {
        return Err(ContentError::Foreign(path.to_owned()));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(ContentError::file(path))
}

fn lock(file: &Mutex<PartialFile>) -> MutexGuard<'_, PartialFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
