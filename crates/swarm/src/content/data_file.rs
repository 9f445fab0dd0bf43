//! The file that holds the bytes of a download.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::content::error::ContentError;
use crate::content::own_file::open_own;

/// An open file and its path, which its errors name.
#[derive(Clone)]
pub(super) struct DataFile {
    file: Arc<File>,
    path: PathBuf,
}

impl DataFile {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// [`ContentError::File`].
    pub(super) fn open(path: &Path) -> Result<Self, ContentError> {
        let file = File::open(path).map_err(ContentError::file(path))?;
        Ok(Self { file: Arc::new(file), path: path.to_owned() })
    }

    /// Opens the file of a download, or makes it. Returns it, and true if it has no bytes yet. It
    /// is locked against other processes until it is dropped.
    ///
    /// # Errors
    /// [`ContentError::InUse`], [`ContentError::Foreign`], [`ContentError::File`].
    pub(super) fn lock(path: PathBuf) -> Result<(Self, bool), ContentError> {
        let data = Self { file: Arc::new(open_own(&path)?), path };
        let is_new = data.length()? == 0;
        match data.file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(ContentError::InUse(data.path)),
            Err(TryLockError::Error(error)) => Err(ContentError::file(&data.path)(error)),
            Ok(()) => Ok((data, is_new)),
        }
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records that the file has another path now.
    pub(super) fn set_path(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> Result<u64, ContentError> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(ContentError::file(&self.path))?.len())
    }

    pub(super) fn set_length(&self, length: u64) -> Result<(), ContentError> {
        self.file.set_len(length).map_err(ContentError::file(&self.path))
    }

    /// Fills `bytes` from the position `start` on.
    pub(super) fn read(&self, bytes: &mut [u8], start: u64) -> Result<(), ContentError> {
        self.file.read_exact_at(bytes, start).map_err(ContentError::file(&self.path))
    }

    pub(super) fn write(&self, bytes: &[u8], start: u64) -> Result<(), ContentError> {
        self.file.write_all_at(bytes, start).map_err(ContentError::file(&self.path))
    }

    /// Waits until all that was written is on the disk.
    pub(super) fn sync(&self) -> Result<(), ContentError> {
        self.file.sync_data().map_err(ContentError::file(&self.path))
    }

    /// Removes its name.
    pub(super) fn remove(&self) -> Result<(), ContentError> {
        fs::remove_file(&self.path).map_err(ContentError::file(&self.path))
    }
}
