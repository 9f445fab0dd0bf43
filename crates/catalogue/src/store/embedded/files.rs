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

/// So few files are synced one by one.
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

    /// Begins to write much below a folder. What is given back puts all of it on disk at once, names and contents, and
    /// fails if anything of it could not be written since now.
    ///
    /// # Errors
    /// What the disk said.
    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll>;

    /// As [`Self::create`] for many below `folder`, each with its content, which is then on disk. Names need not be.
    ///
    /// # Errors
    /// What the disk said; some may be made.
    fn create_all(&self, folder: &Path, files: &[(PathBuf, &[u8])]) -> io::Result<()> {
        let sync_all = many(self, folder, files.len())?;
        for (path, content) in files {
            let mut file = self.create(path)?;
            file.write(content)?;
            if sync_all.is_none() {
                file.sync()?;
            }
        }
        sync_all.map_or(Ok(()), |sync_all| sync_all())
    }

    /// As [`Self::rename`] for many below `folder`, and all new names are on disk then. Their folders are.
    ///
    /// # Errors
    /// What the disk said; some may be renamed.
    fn rename_all(&self, folder: &Path, moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        let sync_all = many(self, folder, moves.len())?;
        moves.iter().try_for_each(|(from, to)| self.rename(from, to))?;
        if let Some(sync_all) = sync_all {
            return sync_all();
        }
        let folders: BTreeSet<&Path> = moves.iter().filter_map(|(_, to)| to.parent()).collect();
        folders.into_iter().try_for_each(|folder| self.sync_folder(folder))
    }
}

/// As [`Files::begin_many`], if `count` is many: a whole file system may have much else to write.
fn many(files: &(impl Files + ?Sized), folder: &Path, count: usize) -> io::Result<Option<SyncAll>> {
    if count > FEW { files.begin_many(folder).map(Some) } else { Ok(None) }
}

/// Puts on disk what was written since it was made.
pub type SyncAll = Box<dyn FnOnce() -> io::Result<()>>;

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

    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll> {
        // Opened before anything is written: from here on no failure of the disk is missed (Linux 5.8 and later).
        let disk = File::open(folder)?;
        Ok(Box::new(move || Ok(rustix::fs::syncfs(&disk)?)))
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
