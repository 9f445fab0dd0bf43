//! The folder of a catalogue of one node, as `import` reads it: from a backup of a catalogue that
//! several nodes share, or the one that a node had for itself before.

use std::fs;
use std::path::Path;

use levada_catalogue::model::{Draft, Key, Published, Version, digest_text};
use levada_catalogue::store::Store as _;
use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore};

use super::exported::Ready;
use crate::failure::Failure;

/// A catalogue that no node has open.
pub struct Stored {
    store: EmbeddedStore,
    /// In the order of publication.
    versions: Vec<(Key, Version)>,
}

impl Stored {
    /// Opens the catalogue in a folder; `None` if there is none.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be read, or a node has it open.
    pub fn open(folder: &Path) -> Result<Option<Self>, Failure> {
        if !folder.join(DATABASE).is_file() {
            return Ok(None);
        }
        let store = EmbeddedStore::open(folder).map_err(Failure::local)?;
        let mut versions = Vec::new();
        store.each(&mut |one| versions.push((one.key, one.version))).map_err(Failure::local)?;
        Ok(Some(Self { store, versions }))
    }

    /// The number of versions.
    pub fn count(&self) -> usize {
        self.versions.len()
    }

    /// Reads each version; an error names it and the reason.
    pub fn read(&self) -> impl Iterator<Item = Result<Ready, String>> {
        self.versions.iter().map(|(key, version)| {
            self.ready(key, version).map_err(|text| format!("{key}@{version}: {text}"))
        })
    }

    fn ready(&self, key: &Key, version: &Version) -> Result<Ready, String> {
        let found = self.store.get(key, version).map_err(|error| error.to_string())?;
        let found = found.ok_or("it is not in the catalogue any more")?;
        let Published { key, version, descriptor, package, signatures, yanked, .. } = found;
        let path = match &package {
            None => None,
            Some(package) => {
                let path = self.store.package_file(&package.digest);
                let is_whole = |it: fs::Metadata| it.is_file() && it.len() == package.length;
                if !fs::metadata(&path).is_ok_and(is_whole) {
                    let digest = digest_text(&package.digest);
                    return Err(format!("its package {digest} is missing or truncated"));
                }
                Some(path)
            }
        };
        let draft = Draft { key, version, descriptor, package, signatures };
        draft.check_signatures().map_err(|error| error.to_string())?;
        Ok(Ready { draft, yanked, package: path })
    }
}
