//! Files with secrets: created with mode 0600, and synced with their folder before use.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Makes sure that `path` is a regular file with mode 0600 at most; a missing folder is created
/// with mode 0700. SQLite gives its companion files (`-wal`, `-shm`) the mode of the database file.
///
/// # Errors
/// The operating system's.
pub fn create_private(path: &Path) -> io::Result<()> {
    // Closing any descriptor of a file drops all POSIX locks of the process on it (fcntl(2)). The
    // descriptor opened here must be closed before another thread opens the file in SQLite.
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

/// The error of a folder, device or FIFO in the place of a database.
pub(crate) fn not_regular() -> io::Error {
    io::Error::other("not a regular file")
}

/// Checks that this user may read a file; with `exclusive`, that they may also write to it and make
/// others next to it, as SQLite does for a process that keeps the file.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`]. A read-only disk is no error here: SQLite reads a database
/// there.
pub(crate) fn check_access(path: &Path, exclusive: bool) -> io::Result<()> {
    let checked = match exclusive {
        true => access(folder_of(path), Access::WRITE_OK | Access::EXEC_OK)
            .and_then(|()| access(path, Access::READ_OK | Access::WRITE_OK)),
        false => access(path, Access::READ_OK),
    };
    match checked {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Checks that this user could create the file `path` and the folders above it that are missing.
/// Nothing is created.
///
/// # Errors
/// The operating system's.
pub fn check_creation(path: &Path) -> io::Result<()> {
    let mut folder = folder_of(path);
    loop {
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(Errno::NOTDIR.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => folder = folder_of(folder),
            Err(error) => return Err(error),
        }
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
}

/// Checks that `folder` is missing, or a folder in which this user can make files. Nothing is
/// created.
///
/// # Errors
/// The operating system's, as for the creation of the folder or of a file in it.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => access(folder, Access::WRITE_OK | Access::EXEC_OK),
        Ok(_) => Err(Errno::EXIST.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks access as the effective user, with which files are opened.
fn access(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Sets mode 0600 if the file allows more, as a copied file may.
fn tighten(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(not_regular());
    }
    if metadata.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
}
