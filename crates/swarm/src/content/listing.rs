//! Lists what a folder has, for its manifest.

use std::fs::{self, DirEntry, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::content::error::ContentError;
use crate::content::manifest::{Entry, Kind, Layout, ManifestError, Modified, Permissions};
use crate::content::paths::{check_path, stays_inside};

/// What of a folder is shared beside the names and bytes of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The layout of the list.
    pub layout: Layout,
    /// Whether times are kept; only in the second layout.
    pub times: bool,
    /// Whether permissions are kept; if not, only execution is. Only in the second layout.
    pub modes: bool,
}

impl Default for Listing {
    /// All.
    fn default() -> Self {
        Self { layout: Layout::Second, times: true, modes: true }
    }
}

impl Listing {
    /// That of shares of earlier versions.
    pub const FIRST: Self = Self { layout: Layout::First, times: false, modes: false };
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// The entries, and where each is.
    pub(super) entries: Vec<(Entry, PathBuf)>,
    /// Symbolic links that lead out of what is shared.
    pub(super) left_out: Vec<PathBuf>,
}

impl Found {
    /// Lists `paths` as one folder: what is in the only one, or else all under their names.
    ///
    /// # Errors
    /// [`ContentError`], with the path.
    pub(super) fn of(paths: &[PathBuf], listing: Listing) -> Result<Self, ContentError> {
        let mut found = Self::default();
        for path in paths {
            let name = match paths {
                [_] => PathBuf::new(),
                _ => name_of(path)?,
            };
            found.walk(path, &name, listing)?;
        }
        found.entries.sort_by(|one, other| one.0.path.cmp(&other.0.path));
        Ok(found)
    }

    fn walk(&mut self, path: &Path, name: &Path, listing: Listing) -> Result<(), ContentError> {
        let metadata = metadata(path)?;
        if metadata.is_file() {
            self.add(path, name, Kind::File(metadata.len()), &metadata, listing);
            return Ok(());
        }
        if listing.layout == Layout::Second {
            self.add(path, name, Kind::Folder, &metadata, listing);
        }
        for child in fs::read_dir(path).map_err(ContentError::file(path))? {
            let child = child.map_err(ContentError::file(path))?;
            let name = name.join(child.file_name());
            let kind = child.file_type().map_err(ContentError::file(&child.path()))?;
            if kind.is_symlink() {
                self.link(&child, &name, listing)?;
                continue;
            }
            if listing.layout == Layout::First && name.to_str().is_none() {
                let name = name.to_string_lossy().into_owned();
                return Err(ManifestError::Path(name).into());
            }
            // The depth and length of each path are bounded here, so that a deep tree does not end
            // the program.
            check_path(&name)?;
            self.walk(&child.path(), &name, listing)?;
        }
        Ok(())
    }

    fn link(
        &mut self,
        child: &DirEntry,
        name: &Path,
        listing: Listing,
    ) -> Result<(), ContentError> {
        let path = child.path();
        let target = fs::read_link(&path).map_err(ContentError::file(&path))?;
        if listing.layout == Layout::First || !stays_inside(name, &target) {
            self.left_out.push(path);
            return Ok(());
        }
        check_path(name)?;
        let metadata = child.metadata().map_err(ContentError::file(&path))?;
        self.add(&path, name, Kind::Link(target), &metadata, listing);
        Ok(())
    }

    fn add(&mut self, path: &Path, name: &Path, kind: Kind, metadata: &Metadata, listing: Listing) {
        let is_executable = metadata.mode() & 0o100 != 0;
        let permissions = match kind {
            Kind::Link(_) => Permissions::Default,
            _ if listing.modes => Permissions::Exact((metadata.mode() & 0o777) as u16),
            Kind::File(_) if is_executable => Permissions::Executable,
            Kind::File(_) | Kind::Folder => Permissions::Default,
        };
        let modified = listing.times.then(|| Modified {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or_default().min(999_999_999),
        });
        let entry = Entry { path: name.to_owned(), kind, permissions, modified };
        self.entries.push((entry, path.to_owned()));
    }
}

fn name_of(path: &Path) -> Result<PathBuf, ContentError> {
    let whole = fs::canonicalize(path).map_err(ContentError::file(path))?;
    let name = whole.file_name().map(PathBuf::from);
    name.ok_or_else(|| ManifestError::Path(path.to_string_lossy().into_owned()).into())
}

/// Reads the metadata of a file or folder, and checks that it can be opened.
///
/// # Errors
/// [`ContentError::Special`] for anything else; [`ContentError::File`].
pub(super) fn metadata(path: &Path) -> Result<Metadata, ContentError> {
    let metadata = fs::metadata(path).map_err(ContentError::file(path))?;
    if metadata.is_file() || metadata.is_dir() {
        // Permission is checked now, not when the first peer asks.
        File::open(path)
            .and_then(
                |mut file| if metadata.is_file() { file.read(&mut [0]).map(drop) } else { Ok(()) },
            )
            .map_err(ContentError::file(path))?;
        return Ok(metadata);
    }
    Err(ContentError::Special(path.to_owned()))
}
