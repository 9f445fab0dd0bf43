//! The list of files at the start of a shared folder.
//!
//! The content of a folder is the length of the manifest (8 bytes, big-endian), the manifest, and the files' bytes in its order. The
//! manifest is, for each file: the length of its path (2 bytes), the path in UTF-8 with `/` between components, the length of the file
//! (8 bytes), and 1 if it is executable, otherwise 0 (1 byte).

use std::path::{Component, Path};

use levada_core::printable::is_printable;
use thiserror::Error;

/// The longest manifest, in bytes.
pub const MAX_MANIFEST: u64 = 64 << 20;
/// The most files. Each takes up to 200 bytes of memory beside its path.
const MAX_FILES: usize = 1_000_000;
/// The longest name of a file or folder, in bytes (NAME_MAX of Linux).
const MAX_NAME: usize = 255;
/// The longest path, in bytes.
const MAX_PATH: usize = 4000;
/// The most components of a path.
const MAX_DEPTH: usize = 64;

/// One file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path within the folder.
    pub path: String,
    /// In bytes.
    pub length: u64,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// The files of a folder, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest(Vec<Entry>);

/// Why a list of files is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// Not in the format.
    #[error("the list of files is malformed")]
    Malformed,
    /// A path that leaves the folder, or that not every file system can hold.
    #[error(
        "the path {0:?} is not allowed in a shared folder: it must be relative, without `..`, control characters or backslashes, in UTF-8, and at most {MAX_NAME} bytes for each name"
    )]
    Path(String),
    /// A name that Windows reserves for a device, or cannot hold.
    #[error(
        "the path {0:?} is not allowed in a share: Windows reserves CON, PRN, AUX, NUL, COM1 and LPT1 with any extension, and no name may end with a dot or a space; rename it"
    )]
    Reserved(String),
    /// Two files with one path, or a file where another path needs a folder.
    #[error("two shared files have the path {0:?}; rename one of them")]
    Twice(String),
    /// Longer than [`MAX_MANIFEST`], more than a million files, or the files together than 2^63 bytes.
    #[error("too many files for one share; pack them into an archive")]
    TooLong,
}

impl Manifest {
    /// Checks a list of files.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn new(entries: Vec<Entry>) -> Result<Self, ManifestError> {
        if entries.len() > MAX_FILES {
            return Err(ManifestError::TooLong);
        }
        let (mut bytes, mut total) = (0_u64, 0_u64);
        for entry in &entries {
            check_path(&entry.path)?;
            bytes += 11 + entry.path.len() as u64;
            total = total.checked_add(entry.length).ok_or(ManifestError::TooLong)?;
        }
        if bytes > MAX_MANIFEST || total > i64::MAX as u64 - MAX_MANIFEST - 8 {
            return Err(ManifestError::TooLong);
        }
        check_distinct(&entries)?;
        Ok(Self(entries))
    }

    /// The same files, with `_` for each character of a path that hides or reorders text, and the number of
    /// paths that this has changed.
    ///
    /// # Errors
    /// [`ManifestError::Twice`] if two paths are equal then.
    pub fn with_printable_paths(self) -> Result<(Self, usize), ManifestError> {
        let mut changed = 0;
        let entries = self.0.into_iter().map(|entry| {
            let path = printable(&entry.path);
            changed += usize::from(path != entry.path);
            Entry { path, ..entry }
        });
        let entries: Vec<Entry> = entries.collect();
        Ok((Self::new(entries)?, changed))
    }

    /// The files.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The files, by value.
    pub fn into_entries(self) -> Vec<Entry> {
        self.0
    }

    /// The beginning of the content: the length and the manifest itself.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 8];
        for Entry { path, length, executable } in &self.0 {
            // Paths were checked to be short.
            out.extend_from_slice(&(path.len() as u16).to_be_bytes());
            out.extend_from_slice(path.as_bytes());
            out.extend_from_slice(&length.to_be_bytes());
            out.push(u8::from(*executable));
        }
        let length = (out.len() - 8) as u64;
        out[..8].copy_from_slice(&length.to_be_bytes());
        out
    }

    /// Decodes a manifest without its length.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() as u64 > MAX_MANIFEST {
            return Err(ManifestError::TooLong);
        }
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            if entries.len() == MAX_FILES {
                return Err(ManifestError::TooLong);
            }
            let path = take(&mut bytes, 2)?;
            let path = take(&mut bytes, usize::from(path[0]) << 8 | usize::from(path[1]))?;
            let path = std::str::from_utf8(path).map_err(|_| ManifestError::Malformed)?.to_owned();
            let length = take(&mut bytes, 8)?.try_into().map_err(|_| ManifestError::Malformed)?;
            let executable = match take(&mut bytes, 1)? {
                [0] => false,
                [1] => true,
                _ => return Err(ManifestError::Malformed),
            };
            entries.push(Entry { path, length: u64::from_be_bytes(length), executable });
        }
        Self::new(entries)
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ManifestError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ManifestError::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

/// Returns a name or path with `_` for each character that hides or reorders text.
pub fn printable(path: &str) -> String {
    path.chars().map(|letter| if is_printable(letter) { letter } else { '_' }).collect()
}

/// Checks that no path stands twice, nor for a folder of another one. Some file systems do not distinguish case;
/// there, one file would replace another.
fn check_distinct(entries: &[Entry]) -> Result<(), ManifestError> {
    // No path has the character NUL. With it for `/`, a path is next to those within it.
    let folded = |entry: &Entry| entry.path.to_lowercase().replace('/', "\0");
    let mut paths: Vec<String> = entries.iter().map(folded).collect();
    paths.sort_unstable();
    for (one, next) in paths.iter().zip(paths.iter().skip(1)) {
        let rest = next.strip_prefix(one.as_str());
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\0')) {
            return Err(ManifestError::Twice(one.replace('\0', "/")));
        }
    }
    Ok(())
}

/// Checks the name of a file or folder: one component of a path.
///
/// # Errors
/// [`ManifestError::Path`], [`ManifestError::Reserved`].
pub fn check_name(name: &str) -> Result<(), ManifestError> {
    if name.contains('/') {
        return Err(ManifestError::Path(name.chars().take(200).collect()));
    }
    check_path(name)
}

/// Checks the path of a file within a folder.
///
/// # Errors
/// [`ManifestError::Path`], [`ManifestError::Reserved`].
pub(super) fn check_path(path: &str) -> Result<(), ManifestError> {
    let shown = || path.chars().take(200).collect();
    let parsed = Path::new(path).components();
    let normal = parsed.clone().all(|part| matches!(part, Component::Normal(_)));
    let names: Vec<&str> = path.split('/').collect();
    // `components` skips empty names and `.`: the numbers differ then.
    let clean = normal && parsed.count() == names.len() && names.len() <= MAX_DEPTH;
    let fits = names.iter().all(|name| name.len() <= MAX_NAME) && path.len() <= MAX_PATH;
    if !clean || !fits || path.contains(|c: char| c.is_control() || c == '\\') {
        return Err(ManifestError::Path(shown()));
    }
    if names.iter().any(|name| is_reserved(name)) {
        return Err(ManifestError::Reserved(shown()));
    }
    Ok(())
}

/// Whether Windows opens a device under this name, whatever its extension, or drops the end of it ("Naming Files, Paths, and Namespaces", Windows
/// documentation). Refused on every system: a file that not every peer can write is no file for many.
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
    use super::*;

    fn entry(path: &str, length: u64) -> Entry {
        Entry { path: path.into(), length, executable: false }
    }

    #[test]
    fn a_manifest_survives_encoding() {
        let manifest = Manifest::new(vec![entry("a", 0), entry("b/c d/ü", 7)]).unwrap();
        let bytes = manifest.encode();
        assert_eq!(bytes[..8], (bytes.len() as u64 - 8).to_be_bytes());
        assert_eq!(Manifest::decode(&bytes[8..]), Ok(manifest));
        for end in 9..bytes.len() {
            let decoded = Manifest::decode(&bytes[8..end]);
            assert!(decoded.is_err() || decoded.unwrap().entries().len() == 1, "{end}");
        }
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        let long = "x".repeat(256);
        let deep = ["d"; 65].join("/");
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a\\b",
            "a\nb",
            "a\0b",
            &long,
            &deep,
        ] {
            let refused = Manifest::new(vec![entry(path, 1)]);
            assert!(matches!(refused, Err(ManifestError::Path(_))), "{path:?}");
        }
    }

    /// Paths of 64 components, each of which names 63 folders: their names would take 2 GB.
    #[test]
    fn deep_paths_and_many_files_have_limits() {
        let deep = |number: usize| entry(&format!("{}{number}", "folder of a name/".repeat(63)), 1);
        let manifest = Manifest::new((0..1000).map(deep).collect()).unwrap();
        assert_eq!(Manifest::decode(&manifest.encode()[8..]), Ok(manifest));
        let many = (0..=MAX_FILES).map(|number| entry(&format!("{number}"), 0)).collect();
        assert_eq!(Manifest::new(many), Err(ManifestError::TooLong));
    }

    #[test]
    fn characters_that_hide_or_reorder_text_are_replaced() {
        let names = ["invoice\u{202e}fdp.exe", "a/\u{200b}b", "c"].map(|path| entry(path, 1));
        let (manifest, changed) =
            Manifest::new(names.into()).unwrap().with_printable_paths().unwrap();
        let paths: Vec<&str> = manifest.entries().iter().map(|one| one.path.as_str()).collect();
        assert_eq!((paths, changed), (vec!["invoice_fdp.exe", "a/_b", "c"], 2));
        let same = Manifest(vec![entry("a\u{202e}", 1), entry("a\u{202d}", 1)]);
        assert_eq!(same.with_printable_paths(), Err(ManifestError::Twice("a_".to_owned())));
    }

    #[test]
    fn names_of_devices_are_refused() {
        for path in [
            "CON",
            "nul",
            "Aux.txt",
            "prn.tar.gz",
            "COM1",
            "com0.log",
            "LPT9",
            "lpt³",
            "a/NUL/b",
            "a/con .txt",
            "CONIN$",
            "a.",
            "a ",
            "a./b",
            "...",
        ] {
            let refused = Manifest::new(vec![entry(path, 1)]);
            assert!(matches!(refused, Err(ManifestError::Reserved(_))), "{path:?} {refused:?}");
            assert_eq!(refused, Manifest::decode(&Manifest(vec![entry(path, 1)]).encode()[8..]));
        }
        for path in
            ["console", "CONTENT.txt", "com", "COM10", "lpt", "null", ".con", "a.nul", "a b.c"]
        {
            assert!(Manifest::new(vec![entry(path, 1)]).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn one_path_is_one_file() {
        let apart = vec![entry("a", 1), entry("a-b", 1), entry("a.d/e", 1), entry("a b/c", 1)];
        assert!(Manifest::new(apart).is_ok());
        for (one, other) in [("a", "a"), ("a", "A"), ("a", "a/b"), ("x/y/z", "x/Y")] {
            let refused = Manifest::new(vec![entry(one, 1), entry(other, 1)]);
            assert!(matches!(refused, Err(ManifestError::Twice(_))), "{one} {other}");
        }
        assert_eq!(
            Manifest::new(vec![entry("a", u64::MAX), entry("b", 1)]),
            Err(ManifestError::TooLong)
        );
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(manifest) = Manifest::decode(bytes) {
                assert_eq!(&manifest.encode()[8..], bytes);
                for entry in manifest.entries() {
                    assert!(
                        !entry.path.starts_with('/')
                            && entry.path.split('/').all(|name| name != "..")
                    );
                }
            }
        });
    }
}
