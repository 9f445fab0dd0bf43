//! Reading `node.db` without a change: for a check while no node runs.

use std::path::Path;

use levada_core::UnixTime;
use levada_database::Database;

use super::group::{LocalGroup, local_groups};
use super::rights::Rights;
use super::time::Time;
use super::{NODE, Store, StoreError};

/// A database that was opened to read it.
pub struct Examined {
    database: Database,
    time: UnixTime,
    groups: Vec<LocalGroup>,
}

impl Store {
    /// Opens the database at `path` to read it, and changes nothing on disk. The caller prevents
    /// that a node starts.
    ///
    /// # Errors
    /// The [`StoreError`] with which [`Self::open`] would fail.
    pub fn examine(path: &Path) -> Result<Examined, StoreError> {
        let (database, is_newest) = Database::examine(path, &NODE)?;
        // A start migrates an older one first.
        let (time, groups) = match is_newest {
            true => database.read(|c| {
                Rights::load(c)?;
                Ok((Time::load(c)?.stored(), local_groups(c)?))
            })?,
            false => (UnixTime(0), Vec::new()),
        };
        Ok(Examined { database, time, groups })
    }
}

impl Examined {
    /// The highest time that is stored; 0 in a database of an earlier version.
    pub fn time(&self) -> UnixTime {
        self.time
    }

    /// The groups of the owner; none in a database of an earlier version.
    pub fn local_groups(&self) -> &[LocalGroup] {
        &self.groups
    }

    /// As [`Store::integrity_check`].
    ///
    /// # Errors
    /// As for [`Store::integrity_check`].
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        self.database.integrity_check()
    }
}
