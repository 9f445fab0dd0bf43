//! Files with secrets: created with mode 0600, and synced with their folder before use.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Makes sure that `path` is a regular file with mode 0600 at most; a missing folder is created with mode 0700.
/// SQLite gives its companion files (`-wal`, `-shm`) the mode of the database file.
///
/// # Errors
/// The operating system's.
pub fn create_private(path: &Path) -> io::Result<()> {
    // Closing any descriptor of a file drops all POSIX locks of the process on it (fcntl(2)). The descriptor
    // opened here must be closed before another thread opens the file in SQLite.
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

/// Creates a file with mode 0600 and opens it for writing.
///
/// # Errors
/// The operating system's, also if the file exists.
pub fn create_private_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Syncs a file and its folder.
///
/// # Errors
/// The operating system's; the file may then not survive a loss of power.
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

/// Creates `folder` with mode 0700 if it is missing. Its ancestors are created one by one,
/// because each entry must be synced in its parent.
///
/// # Errors
/// The operating system's.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder_of(folder);
    create_folder(parent)?;
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(parent),
    }
}

/// Syncs the entries of a folder: created, renamed and removed names.
///
/// # Errors
/// The operating system's.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Sets mode 0600 if the file allows more, as a copied file may.
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
