//! Plain files on the same disk as SQLite's. Paths are as in the virtual file system: without a
//! leading `/`.

use std::io;
use std::sync::Mutex;

use crate::disk::{Disk, Failure, FileId, folder_of};
use crate::{FaultFs, lock};

/// A file open for writing.
pub struct FaultFile {
    disk: &'static Mutex<Disk>,
    id: FileId,
    length: usize,
}

impl FaultFile {
    /// Appends `bytes` to the cache.
    ///
    /// # Errors
    /// Power is lost, or the disk is full; then the part that fits is written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(self.disk).write(self.id, self.length, bytes).map_err(failed)?;
        self.length += bytes.len();
        Ok(())
    }

    /// Makes the content durable, but not the name.
    ///
    /// # Errors
    /// Power is lost.
    pub fn sync(&mut self) -> io::Result<()> {
        lock(self.disk).sync(self.id, false).map_err(failed)
    }
}

impl FaultFs {
    /// Limits the capacity of the disk, in bytes.
    pub fn limit(&self, bytes: Option<usize>) {
        self.lock().limit(bytes);
    }

    /// The length of all files, in bytes.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    /// Creates a folder; it may exist.
    ///
    /// # Errors
    /// Power is lost, the parent is missing, or a file has the name.
    pub fn make_folder(&self, path: &str) -> io::Result<()> {
        let mut disk = self.lock();
        in_folder(&disk, path)?;
        if disk.is_folder(path) {
            return Ok(());
        }
        free(&disk, path)?;
        disk.make_folder(path).map_err(failed)
    }

    /// Creates a file.
    ///
    /// # Errors
    /// Power is lost, its folder is missing, or the name exists.
    pub fn create(&self, path: &str) -> io::Result<FaultFile> {
        let mut disk = self.lock();
        in_folder(&disk, path)?;
        free(&disk, path)?;
        let id = disk.open(path, true).map_err(failed)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(FaultFile { disk: self.disk, id, length: 0 })
    }

    /// The content of a file.
    ///
    /// # Errors
    /// Power is lost, or there is no such file.
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut disk = self.lock();
        let id = disk.open(path, false).map_err(failed)?.ok_or(io::ErrorKind::NotFound)?;
        let mut content = vec![0; disk.len(id).map_err(failed)?];
        disk.read(id, 0, &mut content).map_err(failed)?;
        Ok(content)
    }

    /// Renames a file, replacing a file with the new name.
    ///
    /// # Errors
    /// Power is lost, or there is no such file or folder.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.lock();
        in_folder(&disk, to)?;
        if !disk.exists(from).map_err(failed)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.rename(from, to).map_err(failed)
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// Power is lost, or there is no such file.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        match self.lock().delete(path, false) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::NotFound.into()),
            Err(failure) => Err(failed(failure)),
        }
    }

    /// The names in a folder; the root's name is empty.
    ///
    /// # Errors
    /// Power is lost, or there is no such folder.
    pub fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let disk = self.lock();
        let names = disk.names_in(folder).map_err(failed)?;
        if disk.is_folder(folder) { Ok(names) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Power is lost.
    pub fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.lock().sync_names_in(folder).map_err(failed)
    }

    /// Makes all names and contents below a folder durable in one operation, as `syncfs` does for
    /// the whole file system.
    ///
    /// # Errors
    /// Power is lost.
    pub fn sync_below(&self, folder: &str) -> io::Result<()> {
        self.lock().sync_below(folder).map_err(failed)
    }
}

fn in_folder(disk: &Disk, path: &str) -> io::Result<()> {
    if disk.is_folder(folder_of(path)) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn free(disk: &Disk, path: &str) -> io::Result<()> {
    match disk.exists(path).map_err(failed)? {
        true => Err(io::ErrorKind::AlreadyExists.into()),
        false => Ok(()),
    }
}

fn failed(failure: Failure) -> io::Error {
    match failure {
        Failure::Off => io::Error::other("power is lost"),
        Failure::Full => io::ErrorKind::StorageFull.into(),
    }
}
