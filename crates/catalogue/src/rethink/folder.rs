//! The original's folder: `TYPE/ANY/{description.json, sourcePackage.json, sourceCode…}`, one object each.

mod files;
mod instance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Unfit;
use crate::model::{Draft, Key, Kind, ModelError};

pub use files::MAX_FILE;

/// The folder itself cannot be read.
#[derive(Debug, Error)]
#[error("the folder {} cannot be read: {source}", path.display())]
pub struct FolderError {
    /// Which folder.
    path: PathBuf,
    /// Why not.
    source: io::Error,
}

/// An object that was found, ready to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub folder: PathBuf,
    /// What is to be published; it passes [`Draft::check`].
    pub draft: Draft,
    /// The bytes of its package, at most [`MAX_FILE`].
    pub code: Vec<u8>,
}

/// What was left out.
#[derive(Debug, Error)]
#[error("{}: {reason}", path.display())]
pub struct Skipped {
    /// Where.
    pub path: PathBuf,
    /// Why.
    pub reason: Reason,
}

/// Why something was left out.
#[derive(Debug, Error)]
pub enum Reason {
    /// No folder of one of the original's types.
    #[error(
        "its name is no type of object: use dataschema, hyperty, idp-proxy, protocolstub or runtime"
    )]
    UnknownType,
    /// Packages come with their objects.
    #[error(
        "packages are taken from the objects that they belong to, not from a folder of their own"
    )]
    PackageFolder,
    /// A folder named `default`, which the original skipped too.
    #[error("folders named `default` are skipped: choose a default in the configuration instead")]
    DefaultFolder,
    /// There is no description.json that is a file.
    #[error("there is no description.json")]
    NoDescription,
    /// A file that cannot be read.
    #[error("{file} cannot be read: {source}")]
    Io {
        /// Its name.
        file: String,
        /// Why not.
        source: io::Error,
    },
    /// A file that is longer than [`MAX_FILE`].
    #[error("{0} has more than {MAX_FILE} bytes")]
    TooLong(String),
    /// The original would have left it out, or ended.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It is more than can be published.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Another object before it has its type and name; only the first was ever shown.
    #[error("{} has the same type and name already", .0.display())]
    Twice(PathBuf),
}

/// The objects of a folder, in the order in which the original read them: by type, then by folder. What cannot be
/// taken is reported and left out.
#[derive(Debug)]
pub struct Folder {
    /// What was found in the outer folders.
    pending: VecDeque<Pending>,
    /// Whose names are taken, and where.
    taken: BTreeMap<Key, PathBuf>,
}

#[derive(Debug)]
enum Pending {
    Skipped(Skipped),
    Instance(Kind, PathBuf),
}

impl Folder {
    /// Lists the folder's types and objects. Nothing else is read yet.
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
        Ok(Self { pending, taken: BTreeMap::new() })
    }

    /// How many objects, found or skipped, are still to come; for a progress bar.
    pub fn remaining(&self) -> usize {
        self.pending.len()
    }

    fn read(&mut self, kind: Kind, folder: PathBuf) -> Result<Found, Skipped> {
        let found = match instance::read(kind, &folder) {
            Ok(found) => found,
            Err(reason) => return Err(Skipped { path: folder, reason }),
        };
        let key = &found.draft.key;
        if let Some(first) = self.taken.get(key) {
            return Err(Skipped { path: folder, reason: Reason::Twice(first.clone()) });
        }
        self.taken.insert(key.clone(), folder);
        Ok(found)
    }
}

/// Adds the objects of a type.
fn list_type(folder: &Path, pending: &mut VecDeque<Pending>) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let skipped = |reason| Pending::Skipped(Skipped { path: folder.to_owned(), reason });
    if name == "sourcepackage" {
        pending.push_back(skipped(Reason::PackageFolder));
        return;
    }
    let Some(kind) = name.parse::<Kind>().ok().filter(|kind| *kind != Kind::Service) else {
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
