//! Reading folders and files, with bounds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Reason;
use crate::rethink::names::compare;

/// The longest file that is read, in bytes.
pub const MAX_FILE: u64 = 64 * 1024 * 1024;

/// The folders in a folder, sorted as the original sorted them.
pub(super) fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    sorted(path, Path::is_dir)
}

/// The first file in a folder whose name begins with `start`. The original took any of several.
pub(super) fn first_file(folder: &Path, start: &str) -> io::Result<Option<PathBuf>> {
    let fits = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && path.is_file()
    };
    Ok(sorted(folder, fits)?.into_iter().next())
}

fn sorted(path: &Path, fits: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if fits(&path) {
            found.push(path);
        }
    }
    found.sort_by(|left, right| compare(&left.to_string_lossy(), &right.to_string_lossy()));
    Ok(found)
}

/// The bytes of a file; `None` if there is none. What is there and no file, such as a pipe, is not opened: it might
/// never end.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Reason> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    match read_bounded(&path) {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE => Err(Reason::TooLong(name.to_owned())),
        Ok(bytes) => Ok(Some(bytes)),
        Err(source) => Err(Reason::Io { file: name.to_owned(), source }),
    }
}

/// At most one byte more than [`MAX_FILE`].
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
