//! The names of files that a download needs beside its target.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::content::manifest::MAX_NAME;

/// How many bytes of a hash distinguish names that are too long to be kept whole.
const DISTINCT: usize = 8;

/// `target` with `suffix` behind its name. Of a name that is too long with it, a hash takes the
/// place of the end.
pub(super) fn beside(target: &Path, suffix: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default();
    if name.len() + suffix.len() <= MAX_NAME {
        let mut path = OsString::from(target);
        path.push(suffix);
        return path.into();
    }
    let hash = blake3::hash(name.as_bytes());
    let end = format!("-{}{suffix}", &hash.to_hex()[..2 * DISTINCT]);
    let mut short = name.as_bytes()[..MAX_NAME - end.len()].to_vec();
    short.extend_from_slice(end.as_bytes());
    target.with_file_name(OsString::from_vec(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_short_and_distinct() {
        assert_eq!(beside(Path::new("a/film.mkv"), ".part"), Path::new("a/film.mkv.part"));
        let long = |end: &str| PathBuf::from(format!("a/{}{end}", "x".repeat(254)));
        let [one, other] = [long("1"), long("2")].map(|path| beside(&path, ".part.levada"));
        assert_ne!(one, other);
        for path in [one, other] {
            assert_eq!(path.parent(), Some(Path::new("a")));
            assert_eq!(path.file_name().unwrap().len(), MAX_NAME);
            assert!(path.to_str().unwrap().ends_with(".part.levada"));
        }
    }
}
