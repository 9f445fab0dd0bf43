//! Paths and names in shared folders. They are bytes, as on Linux: mostly UTF-8, and any others
//! travel as they are.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use levada_core::printable::is_printable;

use crate::content::manifest::{MAX_NAME, ManifestError};

/// The longest path, in bytes.
const MAX_PATH: usize = 4000;
/// The most components of a path.
const MAX_DEPTH: usize = 64;

/// Returns a name or path with `_` for each character that hides or reorders text.
pub fn printable(path: &Path) -> PathBuf {
    let replaced = |letter: char| if is_printable(letter) { letter } else { '_' };
    let mut out = Vec::new();
    for part in path.as_os_str().as_bytes().utf8_chunks() {
        out.extend(part.valid().chars().map(replaced).collect::<String>().bytes());
        out.extend_from_slice(part.invalid());
    }
    OsString::from_vec(out).into()
}

/// A path as file systems compare it that do not distinguish case, with NUL for `/`: a path is then
/// next to those within it.
pub(super) fn folded(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for part in path.as_os_str().as_bytes().utf8_chunks() {
        out.extend(part.valid().to_lowercase().replace('/', "\0").bytes());
        out.extend_from_slice(part.invalid());
    }
    out
}

/// Checks the name of a file or folder: one component of a path.
///
/// # Errors
/// [`ManifestError::Path`], [`ManifestError::Reserved`].
pub fn check_name(name: &Path) -> Result<(), ManifestError> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Err(ManifestError::Path(name.to_string_lossy().chars().take(200).collect()));
    }
    check_path(name)
}

/// Checks the path of a file within a folder.
///
/// # Errors
/// [`ManifestError::Path`], [`ManifestError::Reserved`].
pub(super) fn check_path(path: &Path) -> Result<(), ManifestError> {
    let shown = || path.to_string_lossy().chars().take(200).collect();
    let bytes = path.as_os_str().as_bytes();
    let parsed = path.components();
    let normal = parsed.clone().all(|part| matches!(part, Component::Normal(_)));
    let names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
    // `components` skips empty names and `.`: the numbers differ then.
    let clean = normal && parsed.count() == names.len() && names.len() <= MAX_DEPTH;
    let fits = names.iter().all(|name| name.len() <= MAX_NAME) && bytes.len() <= MAX_PATH;
    let control = |part: std::str::Utf8Chunk<'_>| part.valid().contains(char::is_control);
    if !clean || !fits || bytes.contains(&b'\\') || bytes.utf8_chunks().any(control) {
        return Err(ManifestError::Path(shown()));
    }
    if names.iter().any(|name| is_reserved(&String::from_utf8_lossy(name))) {
        return Err(ManifestError::Reserved(shown()));
    }
    Ok(())
}

/// Returns true if a symbolic link at `path` within a folder leads to a place within that folder.
/// Its target may begin with `..` as often as it is deep, and has none further behind, where
/// another link could come before it.
pub(super) fn stays_inside(path: &Path, target: &Path) -> bool {
    let depth = path.components().count().saturating_sub(1);
    let ups = target.components().take_while(|part| *part == Component::ParentDir).count();
    let rest = target.components().skip(ups);
    let bytes = target.as_os_str().as_bytes();
    let fits = !bytes.is_empty() && bytes.len() <= MAX_PATH && !bytes.contains(&0);
    fits && ups <= depth && rest.clone().all(|part| matches!(part, Component::Normal(_)))
        || fits && target == Path::new(".")
}

/// Whether Windows opens a device under this name, whatever its extension, or drops the end of it
/// ("Naming Files, Paths, and Namespaces", Windows documentation). Refused on every system: a file
/// that not every peer can write is no file for many.
fn is_reserved(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
    let is_device = match stem.as_str() {
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$" => true,
        other => ["COM", "LPT"].iter().any(|kind| {
            let number = other.strip_prefix(kind);
            number.is_some_and(|number| {
                let mut digits = number.chars();
                matches!(digits.next(), Some('0'..='9' | '¹' | '²' | '³'))
                    && digits.next().is_none()
            })
        }),
    };
    is_device || name.ends_with(['.', ' '])
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn links_stay_inside_or_lead_outside() {
        for (path, target) in
            [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../b/c"), ("a", "d/e"), ("a", ".")]
        {
            assert!(stays_inside(Path::new(path), Path::new(target)), "{path} {target}");
        }
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a", "../b"),
            ("d/a", "../../b"),
            ("a", "d/../../b"),
            ("d/a", "e/../b"),
            ("a", ""),
        ] {
            assert!(!stays_inside(Path::new(path), Path::new(target)), "{path} {target}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_stay_as_they_are() {
        let name = OsStr::from_bytes(b"caf\xe9 \xe2\x80\xae.txt");
        check_path(Path::new(name)).unwrap();
        assert_eq!(printable(Path::new(name)).as_os_str().as_bytes(), b"caf\xe9 _.txt");
        let [one, other] =
            [b"\xe9", b"\xe8"].map(|name| folded(Path::new(OsStr::from_bytes(name))));
        assert_ne!(one, other);
    }
}
