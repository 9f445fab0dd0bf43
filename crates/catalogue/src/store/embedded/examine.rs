//! Finds what prevents that a store is opened, without a change on disk.

use std::fs;
use std::path::Path;

use levada_database::{Database, DatabaseError, Kind, file};

use super::blobs::{FOLDER, TEMP};
use super::inner::{CATALOGUE, DATABASE};
use super::{EmbeddedStore, Inner};
use crate::store::StoreError;

impl EmbeddedStore {
    /// Checks that [`Self::open`] can open or create the store in `folder`, which no process has
    /// open. Returns an object that checks the whole database; `None` if the store does not exist.
    ///
    /// # Errors
    /// The [`StoreError`] with which [`Self::open`] would fail.
    pub fn examine(folder: &Path) -> Result<Option<Examined>, StoreError> {
        Inner::examine(folder, DATABASE, &CATALOGUE)
    }
}

/// A database that was opened to read it.
pub struct Examined(Database);

impl Examined {
    /// Reads and checks the whole database.
    ///
    /// # Errors
    /// [`StoreError::Database`] with the first fault.
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        Ok(self.0.integrity_check()?)
    }
}

impl Inner {
    /// As [`EmbeddedStore::examine`], for the database `name`.
    pub fn examine(
        folder: &Path,
        name: &str,
        kind: &'static Kind,
    ) -> Result<Option<Examined>, StoreError> {
        let path = folder.join(name);
        let examined = match fs::exists(&path) {
            Ok(true) => Some(Examined(Database::examine(&path, kind)?.0)),
            found => {
                let possible = found.and_then(|_| file::check_creation(&path));
                possible.map_err(|error| DatabaseError::file(&path, error))?;
                None
            }
        };
        let blobs = folder.join(FOLDER);
        for below in [&blobs, &blobs.join(TEMP)] {
            file::check_folder(below).map_err(|error| StoreError::file(below, error))?;
        }
        Ok(examined)
    }
}
