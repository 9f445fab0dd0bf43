//! The operations on files that blobs need, so that tests can put a disk under them that fails.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_database::file;
use rustix::fs::{Mode, OFlags, open, statvfs};

use crate::store::Blob;

/// So few files are synced one by one: a whole file system may have much else to write.
const FEW: usize = 4;
/// What is left on a disk for what must be kept, in bytes.
const SPARE: u64 = 1024 * 1024 * 1024;

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

    /// A file without a name in a folder, private to its owner. None if the file system has no such thing, or has
    /// little room left.
    fn scratch(&self, _folder: &Path) -> Option<File> {
        None
    }

    /// As [`Self::create`] for many in or below `folder`, each with its content, which is then on disk. Names need
    /// not be.
    ///
    /// # Errors
    /// What the disk said; some may be made.
    fn create_all(&self, _folder: &Path, files: &[(PathBuf, &[u8])]) -> io::Result<()> {
        create_each(self, files)
    }

    /// As [`Self::rename`] for many below `folder`, and all new names are on disk then. Their folders are.
    ///
    /// # Errors
    /// What the disk said; some may be renamed.
    fn rename_all(&self, _folder: &Path, moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        rename_each(self, moves)
    }
}

fn create_each(files: &(impl Files + ?Sized), new: &[(PathBuf, &[u8])]) -> io::Result<()> {
    new.iter().try_for_each(|(path, content)| {
        let mut file = files.create(path)?;
        file.write(content)?;
        file.sync()
    })
}

fn rename_each(files: &(impl Files + ?Sized), moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    moves.iter().try_for_each(|(from, to)| files.rename(from, to))?;
    let folders: BTreeSet<&Path> = moves.iter().filter_map(|(_, to)| to.parent()).collect();
    folders.into_iter().try_for_each(|folder| files.sync_folder(folder))
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

    fn scratch(&self, folder: &Path) -> Option<File> {
        let disk = statvfs(folder).ok()?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < SPARE {
            return None;
        }
        // Exclusive: it can never get a name.
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        Some(open(folder, flags, Mode::RUSR | Mode::WUSR).ok()?.into())
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

    fn create_all(&self, folder: &Path, files: &[(PathBuf, &[u8])]) -> io::Result<()> {
        if files.len() <= FEW {
            return create_each(self, files);
        }
        // Opened before anything is written: from here on no failure of the disk is missed (Linux 5.8 and later).
        let disk = File::open(folder)?;
        for (path, content) in files {
            file::create_private_new(path)?.write_all(content)?;
        }
        Ok(rustix::fs::syncfs(&disk)?)
    }

    fn rename_all(&self, folder: &Path, moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        if moves.len() <= FEW {
            return rename_each(self, moves);
        }
        let disk = File::open(folder)?;
        moves.iter().try_for_each(|(from, to)| fs::rename(from, to))?;
        Ok(rustix::fs::syncfs(&disk)?)
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
