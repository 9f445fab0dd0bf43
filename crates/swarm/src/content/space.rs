//! Whether a disk has room for a download.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use crate::content::error::ContentError;

/// The minimum of a step in which a folder is unpacked, in bytes. A step is a sixteenth of the
/// content.
const MIN_STEP: u64 = 1 << 20;
/// The maximum, in bytes.
const MAX_STEP: u64 = 64 << 20;

/// The bytes of a step in which a folder of `length` bytes is unpacked.
pub(super) fn step(length: u64) -> u64 {
    (length / 16).clamp(MIN_STEP, MAX_STEP)
}

/// Gives bytes of a file back to the disk. They read as zeros then.
///
/// # Errors
/// Not every file system can.
pub(super) fn give_back(file: &File, start: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, start, length)?)
}

/// Checks that the disk has room for the rest of a download at `path`, of `length` bytes. For a
/// folder, `moved` bytes are in its files.
///
/// # Errors
/// [`ContentError::Space`], [`ContentError::File`].
pub(super) fn check(
    file: &File,
    path: &Path,
    length: u64,
    moved: Option<u64>,
) -> Result<(), ContentError> {
    let failed = || ContentError::file(path);
    let allocated = file.metadata().map_err(failed())?.blocks() * 512;
    let state = fstatvfs(file).map_err(io::Error::from).map_err(failed())?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    let unpacking = match moved {
        None => 0,
        // Behind the end, it is only tried whether it works.
        Some(_) if length == 0 || give_back(file, length, 1).is_ok() => step(length).min(length),
        Some(moved) => length - moved,
    };
    let rest = (length - moved.unwrap_or_default()).saturating_sub(allocated);
    let needed = rest.saturating_add(unpacking);
    // Some file systems do not tell.
    if needed > free && state.f_blocks > 0 {
        return Err(ContentError::Space { path: path.to_owned(), needed, free });
    }
    Ok(())
}
