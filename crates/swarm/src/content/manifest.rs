//! The list of what is in a shared folder, at the start of its content.

mod encoding;

use std::path::PathBuf;

use thiserror::Error;

use crate::content::paths::{MAX_NAME, check_path, folded, printable, stays_inside};

/// The longest manifest, in bytes.
pub const MAX_MANIFEST: u64 = 64 << 20;
/// The most entries. Each takes up to 300 bytes of memory beside its path.
const MAX_ENTRIES: usize = 1_000_000;

/// A file, folder or link within a shared folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path within the folder; empty for the folder itself.
    pub path: PathBuf,
    /// Which of these it is.
    pub kind: Kind,
    /// What its owner and others may do with it.
    pub permissions: Permissions,
    /// When it was changed last; `None` if that is not kept.
    pub modified: Option<Modified>,
}

/// A kind of entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of so many bytes.
    File(u64),
    /// A folder.
    Folder,
    /// A symbolic link to another path within the shared folder.
    Link(PathBuf),
}

/// The permissions of a file or folder at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permissions {
    /// Those of a new file.
    #[default]
    Default,
    /// The same, and those who may read it may execute it.
    Executable,
    /// The lowest nine bits of its mode.
    Exact(u16),
}

/// A time as a file system has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Less than 1,000,000,000.
    pub nanoseconds: u32,
}

/// The layout of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Files only, of whose permissions only execution is kept: that of shares that were made by earlier versions.
    First,
    /// All.
    #[default]
    Second,
}

/// The entries of a folder, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    layout: Layout,
    entries: Vec<Entry>,
}

/// Why a list of files is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// Not in the format.
    #[error("the list of files is malformed")]
    Malformed,
    /// A path that leaves the folder, or that not every file system can hold.
    #[error(
        "the path {0:?} is not allowed in a shared folder: it must be relative, without `..`, control characters or backslashes, and at most {MAX_NAME} bytes for each name"
    )]
    Path(String),
    /// A link that leads out of the folder.
    #[error("the link {0:?} leads out of the shared folder")]
    Link(String),
    /// A name that Windows reserves for a device, or cannot hold.
    #[error(
        "the path {0:?} is not allowed in a share: Windows reserves CON, PRN, AUX, NUL, COM1 and LPT1 with any extension, and no name may end with a dot or a space; rename it"
    )]
    Reserved(String),
    /// Two files with one path, or a file where another path needs a folder.
    #[error("two shared files have the path {0:?}; rename one of them")]
    Twice(String),
    /// Longer than [`MAX_MANIFEST`], more than a million entries, or the files together than 2^63 bytes.
    #[error("too many files for one share; pack them into an archive")]
    TooLong,
}

impl Entry {
    /// The bytes of a file; 0 for another kind.
    pub fn length(&self) -> u64 {
        if let Kind::File(length) = self.kind { length } else { 0 }
    }

    fn check(&self) -> Result<(), ManifestError> {
        let is_root = self.path.as_os_str().is_empty() && self.kind == Kind::Folder;
        if !is_root {
            check_path(&self.path)?;
        }
        match &self.kind {
            Kind::Link(target) if !stays_inside(&self.path, target) => {
                Err(ManifestError::Link(self.path.to_string_lossy().into_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl Manifest {
    /// Checks a list of entries.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn new(layout: Layout, entries: Vec<Entry>) -> Result<Self, ManifestError> {
        if entries.len() > MAX_ENTRIES {
            return Err(ManifestError::TooLong);
        }
        let mut bytes = 0_u64;
        let mut total = 0_u64;
        for entry in &entries {
            entry.check()?;
            bytes += encoding::length(layout, entry);
            total = total.checked_add(entry.length()).ok_or(ManifestError::TooLong)?;
        }
        if bytes > MAX_MANIFEST || total > i64::MAX as u64 - MAX_MANIFEST - 8 {
            return Err(ManifestError::TooLong);
        }
        check_distinct(&entries)?;
        Ok(Self { layout, entries })
    }

    /// The same entries, with `_` for each character of a path that hides or reorders text, and the number of
    /// paths that this has changed.
    ///
    /// # Errors
    /// [`ManifestError::Twice`] if two paths are equal then.
    pub fn with_printable_paths(self) -> Result<(Self, usize), ManifestError> {
        let mut changed = 0;
        let entries = self.entries.into_iter().map(|entry| {
            let path = printable(&entry.path);
            changed += usize::from(path != entry.path);
            let kind = match entry.kind {
                Kind::Link(target) => Kind::Link(printable(&target)),
                other => other,
            };
            Entry { path, kind, ..entry }
        });
        let entries: Vec<Entry> = entries.collect();
        Ok((Self::new(self.layout, entries)?, changed))
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries, by value.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

/// Checks that no path stands twice, nor for a folder of another one that is none. Some file systems do not distinguish case;
/// there, one file would replace another.
fn check_distinct(entries: &[Entry]) -> Result<(), ManifestError> {
    let mut all: Vec<(Vec<u8>, &Entry)> =
        entries.iter().map(|entry| (folded(&entry.path), entry)).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    for ((one, entry), (next, other)) in all.iter().zip(all.iter().skip(1)) {
        let Some(rest) = next.strip_prefix(one.as_slice()) else { continue };
        let is_within = rest.first() == Some(&0);
        let are_folders = entry.kind == Kind::Folder && other.kind == Kind::Folder;
        let is_free = match rest.is_empty() {
            true => are_folders && entry.path != other.path,
            false => !is_within || entry.kind == Kind::Folder,
        };
        if !is_free {
            return Err(ManifestError::Twice(entry.path.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
