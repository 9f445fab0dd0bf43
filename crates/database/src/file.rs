//! Files of this user alone, which may hold secrets: private from the first moment, and on disk before they are relied on.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Makes sure that `path` is a file that only its owner can read, in a folder of the same kind.
/// SQLite gives its companion files (`-wal`, `-shm`) the mode of the database file.
///
/// # Errors
/// What the operating system said.
pub fn create_private(path: &Path) -> io::Result<()> {
    // Closing any handle of a file drops all POSIX locks that this process has on it: the one made here
    // must be closed before another thread can give the file to SQLite.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder_of(path);
    create_folder(folder)?;
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Ok(file) => {
            file.sync_all()?;
            sync_folder(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => tighten(path),
        Err(error) => Err(error),
    }
}

/// Makes a new file that only its owner can read, and opens it for writing.
///
/// # Errors
/// What the operating system said; the file must not exist yet.
pub fn create_private_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Puts a finished file and its name on disk.
///
/// # Errors
/// What the operating system said; the file may then not survive a loss of power.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    sync_folder(folder_of(path))
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the folder `folder`, for its owner alone, if it is missing. Those above are made one by one,
/// because the name of each must be synced in the one above.
///
/// # Errors
/// What the operating system said.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder_of(folder);
    create_folder(above)?;
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(above),
    }
}

/// Puts the names in a folder on disk: those that were made or renamed, and those that are gone.
///
/// # Errors
/// What the operating system said.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A file that was copied here may have come with a wider mode.
fn tighten(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
}
