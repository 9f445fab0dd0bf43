//! `known.db`: pinned names and keys, records of the capabilities that passed through this home,
//! and the rotations of its own key.
//!
//! Commands open it concurrently, for short transactions; each is on disk when the call returns. It
//! has no secrets.

mod address;
mod find;
mod name;
mod pin;
mod rotation;
pub mod row;

use std::path::Path;
use std::time::Duration;

use levada_capability::{Capability, LinkId};
use levada_core::{Identity, UnixTime};
use levada_database::{Database, DatabaseError as StoreError, Kind};
use rusqlite::OptionalExtension;

pub use address::MOST_ADDRESSES;
pub use name::NameError;
pub use pin::{Pin, PinError, RenameError};
pub use rotation::FollowError;
pub use rotation::MAX_CHAIN;

/// The database `known.db`.
pub struct Known {
    database: Database,
}

const KNOWN: Kind = Kind {
    application_id: 0x4c76_6b6e, // "Lvkn"
    migrations: &[
        include_str!("known/schema/known-1.sql"),
        include_str!("known/schema/known-2.sql"),
    ],
    exclusive: false,
    busy_timeout: Duration::from_secs(5),
    shrinks: false,
};

/// A record of a capability that passed through this home, without its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCapability {
    /// The id of its last link.
    pub link: LinkId,
    /// The node that can verify it.
    pub node: Identity,
    /// The identity that its last link names.
    pub holder: Identity,
    /// When it expires.
    pub expires: UnixTime,
}

impl From<&Capability> for SeenCapability {
    fn from(capability: &Capability) -> Self {
        Self {
            link: capability.chain().last_id(),
            node: capability.node(),
            holder: capability.holder(),
            expires: capability.expires(),
        }
    }
}

impl Known {
    /// Opens the database at `path`; creates it with mode 0600 if it is missing.
    ///
    /// # Errors
    /// [`StoreError`] names the file and the fault.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Database::open(path, &KNOWN)? })
    }

    /// Opens the database at `path` to read it, and changes nothing on disk. Returns whether it has
    /// the newest schema: names of an older one are read after a migration only.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn examine(path: &Path) -> Result<(Self, bool), StoreError> {
        let (database, is_newest) = Database::examine(path, &KNOWN)?;
        Ok((Self { database }, is_newest))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.database.path()
    }

    /// Stores a record of a capability, and deletes the expired records. Only the first call for a
    /// capability writes: it is made for a request and for each start.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read or written.
    pub fn remember_capability(
        &self,
        seen: &SeenCapability,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        let is_stored = self.database.read(|connection| {
            connection
                .prepare_cached("SELECT 1 FROM capability WHERE link = ?1")?
                .exists([seen.link.as_bytes()])
        })?;
        if is_stored {
            return Ok(());
        }
        self.database.write(|tx| {
            tx.execute("DELETE FROM capability WHERE expires <= ?1", [row::from_time(now)])?;
            tx.execute(
                "INSERT INTO capability (link, node, holder, expires) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
                (
                    seen.link.as_bytes(),
                    seen.node.as_bytes(),
                    seen.holder.as_bytes(),
                    row::from_time(seen.expires),
                ),
            )?;
            Ok(())
        })
    }

    /// The number of valid capabilities of other nodes that are bound to `identity`. Those of its
    /// own node are sessions in `node.db`.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn capabilities_held_elsewhere(
        &self,
        identity: &Identity,
        now: UnixTime,
    ) -> Result<u64, StoreError> {
        self.database.read(|connection| {
            connection.query_row(
                "SELECT count(*) FROM capability
                 WHERE holder = ?1 AND node <> ?1 AND expires > ?2",
                (identity.as_bytes(), row::from_time(now)),
                |row| row.get::<_, i64>(0).map(i64::unsigned_abs),
            )
        })
    }

    /// Whether a capability of `node` that has not expired and is bound to `holder` passed through
    /// this home.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn holds_at(
        &self,
        node: &Identity,
        holder: &Identity,
        now: UnixTime,
    ) -> Result<bool, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1 FROM capability WHERE node = ?1 AND holder = ?2 AND expires > ?3",
                )?
                .exists((node.as_bytes(), holder.as_bytes(), row::from_time(now)))
        })
    }

    /// The version of the protocol that `node` spoke on its last connection; 0 if that is unknown.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn version_of(&self, node: &Identity) -> Result<u32, StoreError> {
        self.database.read(|connection| {
            let version = connection
                .prepare_cached("SELECT version FROM node_version WHERE node = ?1")?
                .query_row([node.as_bytes()], |row| row.get(0))
                .optional()?;
            Ok(version.unwrap_or(0))
        })
    }

    /// Stores the version of the protocol that `node` speaks. Writes only a change.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be written.
    pub fn note_version(&self, node: &Identity, version: u32) -> Result<(), StoreError> {
        if self.version_of(node)? == version {
            return Ok(());
        }
        self.database.write(|tx| {
            tx.execute(
                "INSERT INTO node_version (node, version) VALUES (?1, ?2)
                 ON CONFLICT (node) DO UPDATE SET version = excluded.version",
                (node.as_bytes(), version),
            )?;
            Ok(())
        })
    }

    /// Writes a snapshot of the database to the new file `to` (mode 0600). It is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`StoreError`] names `to`, which must not exist.
    pub fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.database.snapshot(to)
    }

    /// Reads the whole file and checks that it is consistent.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first fault found.
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        self.database.integrity_check()
    }
}

#[cfg(test)]
mod tests;
