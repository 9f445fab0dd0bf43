//! The list of what is in a shared folder, at the start of its content.

mod encoding;
mod error;

use std::path::PathBuf;

use crate::content::paths::{check_path, folded, printable, stays_inside};

pub(super) use error::MAX_NAME;
pub use error::ManifestError;

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
    /// Files only, of whose permissions only execution is kept: that of shares that were made by
    /// earlier versions.
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

impl Entry {
    /// The bytes of a file; 0 for another kind.
    pub fn length(&self) -> u64 {
        if let Kind::File(length) = self.kind { length } else { 0 }
    }

    /// The length of the entry in a manifest of this layout (see `encoding.rs`), in bytes.
    fn encoded_length(&self, layout: Layout) -> u64 {
        let path = self.path.as_os_str().len();
        let length = match (layout, &self.kind) {
            (Layout::First, _) => 11 + path,
            (Layout::Second, Kind::File(_)) => 17 + path + 8,
            (Layout::Second, Kind::Folder) => 17 + path,
            (Layout::Second, Kind::Link(target)) => 17 + path + 2 + target.as_os_str().len(),
        };
        length as u64
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
            bytes += entry.encoded_length(layout);
            total = total.checked_add(entry.length()).ok_or(ManifestError::TooLong)?;
        }
        if bytes > MAX_MANIFEST || total > i64::MAX as u64 - MAX_MANIFEST - 8 {
            return Err(ManifestError::TooLong);
        }
        check_distinct(&entries)?;
        Ok(Self { layout, entries })
    }

    /// The same entries, with `_` for each character of a path that hides or reorders text, and the
    /// number of paths that this has changed.
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

/// Checks that no path stands twice, nor for a folder of another one that is none. Some file
/// systems do not distinguish case; there, one file would replace another.
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
