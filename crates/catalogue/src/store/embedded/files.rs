//! The file operations of the store, as a trait, so that tests can simulate disk failures.

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

/// Up to this many files are synced one by one; more with one `syncfs`.
const MAX_SINGLE_SYNCS: usize = 4;
/// Free disk space below which no scratch files are created, in bytes.
const MIN_FREE_FOR_SCRATCH: u64 = 1024 * 1024 * 1024;

/// The file operations of the store.
pub trait Files: Send + Sync {
    /// Creates a folder with access for its owner only; it may exist. Its name is not synced.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates a new file with access for its owner only.
    ///
    /// # Errors
    /// The file exists, or the operating system reports another error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;
    /// Renames a file, and replaces an existing one.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Syncs the names in a folder to disk.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Deletes a file.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;
    /// Opens a file; `None` if it does not exist.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn read(&self, path: &Path) -> io::Result<Option<Blob>>;

    /// An unnamed file in a folder, with access for its owner only. `None` if the file system does
    /// not support it, or is nearly full.
    fn scratch(&self, _folder: &Path) -> Option<File> {
        None
    }

    /// To be called before many files below a folder are written. The returned function syncs all
    /// names and contents at once, and fails if any write since this call failed.
    ///
    /// # Errors
    /// The operating system reports an error.
    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll>;

    /// Creates many files below `folder` and syncs their contents, but not their names.
    ///
    /// # Errors
    /// The operating system reports an error; some files may be created.
    fn create_all(&self, folder: &Path, files: &[(PathBuf, &[u8])]) -> io::Result<()> {
        let sync_all = begin_if_many(self, folder, files.len())?;
        for (path, content) in files {
            let mut file = self.create(path)?;
            file.write(content)?;
            if sync_all.is_none() {
                file.sync()?;
            }
        }
        sync_all.map_or(Ok(()), |sync_all| sync_all())
    }

    /// Renames many files below `folder` and syncs the new names. Their folders are synced already.
    ///
    /// # Errors
    /// The operating system reports an error; some files may be renamed.
    fn rename_all(&self, folder: &Path, moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
        let sync_all = begin_if_many(self, folder, moves.len())?;
        moves.iter().try_for_each(|(from, to)| self.rename(from, to))?;
        if let Some(sync_all) = sync_all {
            return sync_all();
        }
        let folders: BTreeSet<&Path> = moves.iter().filter_map(|(_, to)| to.parent()).collect();
        folders.into_iter().try_for_each(|folder| self.sync_folder(folder))
    }
}

/// Calls [`Files::begin_many`] if `count` is large. `syncfs` also writes unrelated data of the file
/// system, so a few files are synced one by one.
fn begin_if_many(
    files: &(impl Files + ?Sized),
    folder: &Path,
    count: usize,
) -> io::Result<Option<SyncAll>> {
    if count > MAX_SINGLE_SYNCS { files.begin_many(folder).map(Some) } else { Ok(None) }
}

/// Syncs everything that was written since it was created.
pub type SyncAll = Box<dyn FnOnce() -> io::Result<()>>;

/// A file that is being written.
pub trait NewFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// The operating system reports an error; a part may be written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Syncs the content to disk.
    ///
    /// # Errors
    /// The operating system reports an error.
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
        if disk.f_bavail.saturating_mul(disk.f_frsize) < MIN_FREE_FOR_SCRATCH {
            return None;
        }
        // `EXCL`: the file can never be linked to a name.
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
        // `syncfs` reports write errors since this descriptor was opened (Linux 5.8 and later).
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
