//! Files and folders that only their owner may read. A crash leaves either the old or the new
//! content.

use levada_database::file;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::HomeError;

/// Creates `folder` and its parents, readable by their owner only. An existing folder is not
/// checked, because the volume of a container may belong to another user.
pub(super) fn create_folder(folder: &Path) -> Result<(), HomeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(HomeError::io("create the folder", folder))
}

/// As [`create_folder`], but refuses a folder that another user controls: in a shared folder such
/// as /tmp, another user may have created it.
pub(super) fn create_own_folder(path: &Path) -> Result<(), HomeError> {
    create_folder(path)?;
    let folder = fs::symlink_metadata(path).map_err(HomeError::io("examine", path))?;
    check_owner(path, &folder)
}

/// The error with which [`create_folder`] would fail; nothing is created.
pub(super) fn check_folder(folder: &Path) -> Result<(), HomeError> {
    let fail = || HomeError::io("create the folder", folder);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(fail()(Errno::EXIST.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            file::check_creation(folder).map_err(fail())
        }
        Err(error) => Err(fail()(error)),
    }
}

/// The error with which [`create_own_folder`] would fail; nothing is created.
pub(super) fn check_own_folder(path: &Path) -> Result<(), HomeError> {
    check_folder(path)?;
    fs::symlink_metadata(path).map_or(Ok(()), |folder| check_owner(path, &folder))
}

fn check_owner(path: &Path, folder: &Metadata) -> Result<(), HomeError> {
    let refuse = |reason| Err(HomeError::Unsafe { path: path.to_owned(), reason });
    let user = rustix::process::geteuid().as_raw();
    if folder.is_symlink() {
        return refuse("it is a symbolic link");
    }
    // Root may work in the folder of a user (`sudo`).
    if folder.uid() != user && user != 0 {
        return refuse("it belongs to another user");
    }
    if folder.permissions().mode() & 0o022 != 0 {
        return refuse("others may write to it");
    }
    Ok(())
}

/// Writes `content` to `path` with mode 0600, durably and atomically. Without `overwrite`, an
/// existing file is left unchanged, and the result is `false`.
///
/// # Errors
/// [`HomeError::Io`] names the file, which is unchanged.
pub fn write_private(path: &Path, content: &[u8], overwrite: bool) -> Result<bool, HomeError> {
    let temporary = TemporaryFile::create(path)?;
    let fail = || HomeError::io("write", path);
    (&temporary.file).write_all(content).map_err(fail())?;
    temporary.file.sync_all().map_err(fail())?;
    let placed = if overwrite {
        fs::rename(&temporary.path, path).map(|()| true)
    } else {
        rename_no_replace(&temporary.path, path)
    };
    let placed = placed.map_err(fail())?;
    sync_folder_of(path)?;
    Ok(placed)
}

/// Renames `from` to `to` durably, and replaces an existing file.
pub(super) fn rename_over(from: &Path, to: &Path) -> Result<(), HomeError> {
    fs::rename(from, to).map_err(HomeError::io("rename", from))?;
    sync_folder_of(to)
}

/// Renames `from` to `to` unless that exists. NFS does not support RENAME_NOREPLACE, and FAT does
/// not support hard links, so both are tried.
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(rustix::io::Errno::EXIST) => return Ok(false),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn sync_folder_of(path: &Path) -> Result<(), HomeError> {
    let folder = folder_of(path);
    File::open(folder).and_then(|opened| opened.sync_all()).map_err(HomeError::io("sync", folder))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file in the folder of its target, removed when dropped unless it was renamed.
struct TemporaryFile {
    path: PathBuf,
    file: File,
}

impl TemporaryFile {
    fn create(target: &Path) -> Result<Self, HomeError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".{}-{count}.new", std::process::id()));
        let path = folder_of(target).join(name);
        // A crashed process with the same number may have left this file.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(HomeError::io("write", target))?;
        Ok(Self { path, file })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
