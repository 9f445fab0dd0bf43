//! Reading of files on this machine, and their names.

use std::ffi::OsString;
use std::fs::File;
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
    let (mut hasher, mut length, mut part) = (Hasher::default(), 0, vec![0; PART]);
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

/// The beginning of the name of an incomplete download. It contains the package's digest, so that only this package is resumed.
pub fn partial_name(path: &Path, package: &Package) -> OsString {
    let text = digest_text(&package.digest);
    let digits = text.rsplit(':').next().and_then(|text| text.get(..DIGITS)).unwrap_or_default();
    let mut name = OsString::from(path);
    name.push(format!(".{digits}"));
    name
}
