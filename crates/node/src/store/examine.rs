//! Reading `node.db` without a change: for a check while no node runs.

use std::path::Path;

use levada_core::{Identity, UnixTime};
use levada_database::Database;

use super::group::{LocalGroup, local_groups};
use super::rights::Rights;
use super::succession::rotations;
use super::time::Time;
use super::{DenialReason, NODE, Store, StoreError};

/// A database that was opened to read it.
pub struct Examined {
    database: Database,
    content: Content,
}

/// The content that checks need; empty for a database of an earlier version.
#[derive(Default)]
struct Content {
    time: UnixTime,
    groups: Vec<LocalGroup>,
    rotations: Vec<(Identity, Identity)>,
    rights: Rights,
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
        let content = match is_newest {
            true => database.read(|c| {
                Ok(Content {
                    time: Time::load(c)?.stored(),
                    groups: local_groups(c)?,
                    rotations: rotations(c)?,
                    rights: Rights::load(c)?,
                })
            })?,
            false => Content::default(),
        };
        Ok(Examined { database, content })
    }
}

impl Examined {
    /// The highest time that is stored; 0 in a database of an earlier version.
    pub fn time(&self) -> UnixTime {
        self.content.time
    }

    /// The groups of the owner; none in a database of an earlier version.
    pub fn local_groups(&self) -> &[LocalGroup] {
        &self.content.groups
    }

    /// Rotated keys with their successors; none in a database of an earlier version.
    pub fn rotations(&self) -> &[(Identity, Identity)] {
        &self.content.rotations
    }

    /// The reason why every request of `identity` is denied; `None` if none is known.
    pub fn denial_reason(&self, identity: &Identity) -> Option<DenialReason> {
        self.content.rights.first_denied([identity])
    }

    /// As [`Store::integrity_check`].
    ///
    /// # Errors
    /// As for [`Store::integrity_check`].
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        self.database.integrity_check()
    }
}
