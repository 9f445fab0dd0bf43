//! Plain files on the same disk as SQLite's, by the names of its virtual file system: without a `/` in front.

use std::io;
use std::sync::Mutex;

use crate::disk::{Disk, Failure, FileId, folder_of};
use crate::{FaultFs, lock};

/// A file that is being written.
pub struct FaultFile {
    disk: &'static Mutex<Disk>,
    id: FileId,
    length: usize,
}

impl FaultFile {
    /// Appends `bytes`, which are in the cache then.
    ///
    /// # Errors
    /// Power is lost, or the disk is full; then a part is written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(self.disk).write(self.id, self.length, bytes).map_err(failed)?;
        self.length += bytes.len();
        Ok(())
    }

    /// Makes the content durable, and not the name.
    ///
    /// # Errors
    /// Power is lost.
    pub fn sync(&mut self) -> io::Result<()> {
        lock(self.disk).sync(self.id, false).map_err(failed)
    }
}

impl FaultFs {
    /// From now on all files together may have so many bytes.
    pub fn limit(&self, bytes: Option<usize>) {
        self.lock().limit(bytes);
    }

    /// How many bytes all files have.
    pub fn used(&self) -> usize {
        self.lock().used()
    }

    /// Makes a folder; it may exist.
    ///
    /// # Errors
    /// Power is lost, the folder above is missing, or a file has the name.
    pub fn make_folder(&self, path: &str) -> io::Result<()> {
        let mut disk = self.lock();
        in_folder(&disk, path)?;
        if disk.is_folder(path) {
            return Ok(());
        }
        free(&disk, path)?;
        disk.make_folder(path).map_err(failed)
    }

    /// Makes a new file.
    ///
    /// # Errors
    /// Power is lost, its folder is missing, or the name is taken.
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

    /// Gives a file another name, in place of the file that has it.
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

    /// The names in a folder; the empty name is that of the folder of all others.
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

    /// Makes everything below a folder durable, names and contents, in one operation: as `syncfs` does, which may do
    /// more.
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
