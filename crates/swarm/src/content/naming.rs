//! Gives what is complete its name, and never replaces what has it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::content::error::ContentError;

/// Gives the open file at `from` the name `target`.
///
/// # Errors
/// [`ContentError::Exists`], [`ContentError::File`]; [`ContentError::Foreign`] if another file has
/// taken its place at `from`.
pub(super) fn name_file(file: &File, from: &Path, target: &Path) -> Result<(), ContentError> {
    if !is_at(file, from) {
        return Err(ContentError::Foreign(from.to_owned()));
    }
    // Unlike a rename, a hard link does not replace what is there. By the open file, because its
    // old name may stand for another one by now.
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, open, CWD, target, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(ContentError::Exists(target.to_owned())),
        // Some file systems have no hard links.
        Err(_) => fs::rename(from, target).map_err(ContentError::file(target))?,
    }
    let _ = fs::remove_file(from);
    Ok(())
}

/// Gives the folder at `from` the name `target`.
///
/// # Errors
/// [`ContentError::Exists`], [`ContentError::File`].
pub(super) fn name_folder(from: &Path, target: &Path) -> Result<(), ContentError> {
    match renameat_with(CWD, from, CWD, target, RenameFlags::NOREPLACE) {
        // Some file systems cannot refuse: then an empty folder of this name would be replaced.
        Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(target).is_err() => {
            fs::rename(from, target).map_err(ContentError::file(target))
        }
        Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => {
            Err(ContentError::Exists(target.to_owned()))
        }
        renamed => renamed.map_err(|error| ContentError::file(target)(error.into())),
    }
}

/// Waits until the name `target` is on the disk.
///
/// # Errors
/// [`ContentError::File`].
pub(super) fn sync_name(target: &Path) -> Result<(), ContentError> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(ContentError::file(folder))
}

/// Returns true if `path` is a name of this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let file = file.metadata().map(place);
    let named = fs::symlink_metadata(path).map(place);
    matches!((file, named), (Ok(file), Ok(named)) if file == named)
}
