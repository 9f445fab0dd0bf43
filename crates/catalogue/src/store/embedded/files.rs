//! The operations on files that blobs need, so that tests can put a disk under them that fails.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use levada_database::file;

use crate::store::Blob;

/// What blobs are stored with.
pub trait Files: Send + Sync {
    /// Makes a folder, private to its owner; it may exist. Its name need not be on disk.
    ///
    /// # Errors
    /// What the disk said.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a new file, private to its owner.
    ///
    /// # Errors
    /// What the disk said; the file must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Gives a file another name, in place of the one that has it.
    ///
    /// # Errors
    /// What the disk said.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Puts the names in a folder on disk.
    ///
    /// # Errors
    /// What the disk said.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Deletes a file.
    ///
    /// # Errors
    /// What the disk said.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// What the disk said.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;
    /// The content of a file; none if there is no such file.
    ///
    /// # Errors
    /// What the disk said.
    fn read(&self, path: &Path) -> io::Result<Option<Blob>>;
}

/// A file that is being written.
pub trait NewFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// What the disk said; a part may be written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Puts the content on disk.
    ///
    /// # Errors
    /// What the disk said.
    fn sync(&mut self) -> io::Result<()>;
}

/// The files of the operating system.
pub(super) fn operating_system() -> Arc<dyn Files> {
    Arc::new(OperatingSystem)
}

struct OperatingSystem;

impl Files for OperatingSystem {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(file::create_private_new(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        file::sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        match File::open(path) {
            Ok(file) => {
                let length = file.metadata()?.len();
                Ok(Some(Blob::File(file, length)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl NewFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
