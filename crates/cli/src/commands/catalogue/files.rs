//! Reading of files on this machine, and their names.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use levada_catalogue::model::{Package, digest_text};
use levada_core::{Digest, Hasher};

use crate::failure::{Failure, USAGE};

/// Bytes of one read of a file.
const PART: usize = 64 * 1024;
/// Digits of the digest in the name of an incomplete download.
const DIGITS: usize = 16;

/// Reads a whole file of at most `max` bytes; `-` is standard input.
pub fn read(path: &Path, max: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that is too long.
    let bound = max as u64 + 1;
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(bound).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(bound).read_to_end(&mut bytes)),
    };
    read.map_err(Failure::file("read", path))?;
    if bytes.len() > max {
        let text = format!("{}: it has more than {max} bytes", path.display());
        return Err(Failure::new(USAGE, text));
    }
    Ok(bytes)
}

/// SHA-256 and length of everything up to the end of `from`.
pub fn digest(from: &mut impl Read) -> io::Result<(Digest, u64)> {
    let mut hasher = Hasher::default();
    let mut length = 0;
    let mut part = vec![0; PART];
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok((hasher.finish(), length)),
            Ok(read) => {
                hasher.update(&part[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Refuses what is not a regular file: a package is renamed to its name, which would replace a
/// device or a link, and to read a FIFO may block.
///
/// # Errors
/// [`Failure`] 120 with what it is, and what to do.
pub fn check_target(path: &Path) -> Result<(), Failure> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file("read", path)(error)),
    };
    let (what, remedy) = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => ("a folder", "name a file in it"),
        kind if kind.is_symlink() => ("a symbolic link", "remove it, or name the file it leads to"),
        _ => ("not a regular file", "name another file, or one that does not exist"),
    };
    Err(Failure::local(format!("{} is {what}: {remedy}", path.display())))
}

/// The beginning of the name of an incomplete download. It contains the package's digest, so that
/// only this package is resumed.
pub fn partial_name(path: &Path, package: &Package) -> OsString {
    let text = digest_text(&package.digest);
    let digits = text.rsplit(':').next().and_then(|text| text.get(..DIGITS)).unwrap_or_default();
    let mut name = OsString::from(path);
    name.push(format!(".{digits}"));
    name
}
