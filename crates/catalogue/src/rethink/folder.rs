//! Folders of reTHINK's catalogue: `TYPE/ANY/{description.json, sourcePackage.json, sourceCode…}`,
//! each with one object.

mod files;
mod found;
mod instance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::model::{Key, Kind};

pub use found::{Found, MAX_FILE, Reason, Skipped};

/// The folder to import cannot be read.
#[derive(Debug, Error)]
#[error("the folder {} cannot be read: {source}", path.display())]
pub struct FolderError {
    /// The folder.
    path: PathBuf,
    /// The cause.
    source: io::Error,
}

/// Iterates over the objects of a folder in the order of reTHINK's catalogue: by type, then by
/// folder. An object that cannot be imported is an `Err`.
#[derive(Debug)]
pub struct Folder {
    /// The folders of objects that are not read yet, and the skipped folders of types.
    pending: VecDeque<Pending>,
    /// The objects read so far, and their folders.
    seen: BTreeMap<Key, PathBuf>,
}

#[derive(Debug)]
enum Pending {
    Skipped(Skipped),
    Instance(Kind, PathBuf),
}

impl Folder {
    /// Lists the folders of types and objects. The objects are read by the iteration.
    ///
    /// # Errors
    /// [`FolderError`] if it cannot be read.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let types =
            files::folders(path).map_err(|source| FolderError { path: path.to_owned(), source })?;
        let mut pending = VecDeque::new();
        for folder in types {
            list_type(&folder, &mut pending);
        }
        Ok(Self { pending, seen: BTreeMap::new() })
    }

    /// The number of remaining items, for a progress bar.
    pub fn remaining(&self) -> usize {
        self.pending.len()
    }

    fn read(&mut self, kind: Kind, folder: PathBuf) -> Result<Found, Skipped> {
        let found = match instance::read(kind, &folder) {
            Ok(found) => found,
            Err(reason) => return Err(Skipped { path: folder, reason }),
        };
        let key = &found.draft.key;
        if let Some(first) = self.seen.get(key) {
            return Err(Skipped { path: folder, reason: Reason::Duplicate(first.clone()) });
        }
        self.seen.insert(key.clone(), folder);
        Ok(found)
    }
}

/// Appends the objects of a type.
fn list_type(folder: &Path, pending: &mut VecDeque<Pending>) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let skipped = |reason| Pending::Skipped(Skipped { path: folder.to_owned(), reason });
    if name == "sourcepackage" {
        pending.push_back(skipped(Reason::PackageFolder));
        return;
    }
    let Some(kind) = name.parse::<Kind>().ok().filter(|kind| kind.is_rethink()) else {
        pending.push_back(skipped(Reason::UnknownType));
        return;
    };
    match files::folders(folder) {
        Ok(instances) => {
            pending.extend(instances.into_iter().map(|path| Pending::Instance(kind, path)));
        }
        Err(source) => {
            let file = name.into_owned();
            pending.push_back(skipped(Reason::Io { file, source }));
        }
    }
}

impl Iterator for Folder {
    type Item = Result<Found, Skipped>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.pending.pop_front()? {
            Pending::Skipped(skipped) => Err(skipped),
            Pending::Instance(kind, folder) => self.read(kind, folder),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.pending.len(), Some(self.pending.len()))
    }
}
