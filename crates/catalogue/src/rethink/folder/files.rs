//! Reading of folders and files with limits.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{MAX_FILE, Reason};
use crate::rethink::names::compare;

/// The folders in a folder, in the order of reTHINK's catalogue.
pub(super) fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    sorted(path, Path::is_dir)
}

/// The first file in a folder whose name begins with `start`. With several, reTHINK's catalogue
/// chose any of them.
pub(super) fn first_file(folder: &Path, start: &str) -> io::Result<Option<PathBuf>> {
    let matches = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && path.is_file()
    };
    Ok(sorted(folder, matches)?.into_iter().next())
}

fn sorted(path: &Path, matches: impl Fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if matches(&path) {
            found.push(path);
        }
    }
    found.sort_by(|left, right| compare(&left.to_string_lossy(), &right.to_string_lossy()));
    Ok(found)
}

/// The content of a file, or `None` if it does not exist. Anything but a regular file, such as a
/// pipe, is not opened, because reading it may not end.
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

/// Reads at most [`MAX_FILE`] + 1 bytes.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
