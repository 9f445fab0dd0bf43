//! Gives the files of an unpacked folder their permissions and times, and makes its links.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::content::error::ContentError;
use crate::content::manifest::{Entry, Kind, Modified, Permissions};

/// Does so with all `entries` of the folder at `root`, what is in a folder before the folder
/// itself: whatever is made in it changes its time, and its permissions may forbid it. Returns the
/// mode of the root itself, which only its owner may use until it has its name.
///
/// # Errors
/// [`ContentError::File`]. It may be done again.
pub(super) fn set_all(root: &Path, entries: &[Entry]) -> Result<u32, ContentError> {
    let umask = umask();
    let mut mode = 0o777 & !umask;
    // A folder is before what is in it.
    let mut sorted: Vec<(PathBuf, &Entry)> =
        entries.iter().map(|entry| (root.join(&entry.path), entry)).collect();
    sorted.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    for (path, entry) in &sorted {
        let made = match &entry.kind {
            // An earlier run may have closed it.
            Kind::Folder => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
            Kind::Link(target) => link(target, path),
            Kind::File(_) => Ok(()),
        };
        made.map_err(ContentError::file(path))?;
    }
    for (path, entry) in sorted.iter().rev() {
        let failed = ContentError::file(path);
        set_time(entry.modified, path).map_err(failed)?;
        if entry.path.as_os_str().is_empty() {
            mode = mode_of(entry, umask);
        } else if !matches!(entry.kind, Kind::Link(_)) {
            let mode = fs::Permissions::from_mode(mode_of(entry, umask));
            fs::set_permissions(path, mode).map_err(ContentError::file(path))?;
        }
    }
    Ok(mode)
}

/// Makes a link, which an earlier run may have made.
fn link(target: &Path, path: &Path) -> io::Result<()> {
    match symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(path)? == target { Ok(()) } else { Err(error) }
        }
        made => made,
    }
}

fn mode_of(entry: &Entry, umask: u32) -> u32 {
    let most = if entry.kind == Kind::Folder { 0o777 } else { 0o666 };
    let new = most & !umask;
    match entry.permissions {
        Permissions::Default => new,
        // For those who may read.
        Permissions::Executable => new | (new & 0o444) >> 2,
        Permissions::Exact(mode) => u32::from(mode) & 0o777,
    }
}

fn set_time(modified: Option<Modified>, path: &Path) -> io::Result<()> {
    let Some(Modified { seconds, nanoseconds }) = modified else { return Ok(()) };
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access, last_modification };
    match utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
        // The file system cannot hold it.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OVERFLOW) => Ok(()),
        set => Ok(set?),
    }
}

/// The permissions that new files of this process do not get.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}
