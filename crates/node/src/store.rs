//! `node.db`: everything a running node must not forget. Sessions and their roots, uses, revocations,
//! invitations, who may request, dead keys, the highest time seen, and the audit log.
//!
//! The running node alone has the file open. Every call that changes something is one transaction and
//! is on disk when it returns; a call that fails has changed nothing. What has ended, is revoked or
//! used up stays so, whatever happens in between: the schema itself refuses the way back.

mod audit;
mod end;
mod find;
mod invitation;
mod policy;
pub(crate) mod row;
mod session;
mod start;
mod succession;
mod time;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

pub use audit::{AuditEntry, NewAuditEntry};
pub use end::EndError;
pub use find::Revocable;
pub use invitation::{RedeemError, Redeemed};
pub use policy::{Allowed, Barred, Policy};
pub use session::{NewSession, SessionFilter, SessionRecord, SessionState, SessionSummary};
pub use start::{NewStart, StartError};
pub use succession::{SucceedError, Succeeded};
pub use time::Now;

pub use levada_database::{DatabaseError as StoreError, DiskState};

pub(crate) use levada_database::Fault;

use levada_database::{Database, Kind};
use time::Time;

/// The database of a running node.
pub struct Store {
    database: Database,
    time: Mutex<Time>,
}

const NODE: Kind = Kind {
    application_id: 0x4c76_6e64, // "Lvnd"
    migrations: &[include_str!("store/schema/node-1.sql"), include_str!("store/schema/node-2.sql")],
    exclusive: true,
    busy_timeout: Duration::ZERO,
};

impl Store {
    /// Opens the database at `path`; makes it, with mode 0600, if it is missing. Holds it alone until
    /// dropped.
    ///
    /// # Errors
    /// [`StoreError`] names the file and says what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with(Database::open(path, &NODE)?)
    }

    /// As [`Self::open`] in the SQLite virtual file system that is registered as `vfs`; for tests of
    /// what happens when the machine loses power.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with_vfs(path: &Path, vfs: &str) -> Result<Self, StoreError> {
        Self::with(Database::open_with_vfs(path, vfs, &NODE)?)
    }

    fn with(database: Database) -> Result<Self, StoreError> {
        let time = Mutex::new(Time::load(&database)?);
        Ok(Self { database, time })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.database.path()
    }

    /// Writes a copy of the database, as it is now, to the new file `to` (mode 0600). It is on disk
    /// when this returns. The copy holds the roots of all sessions: keep it secret.
    ///
    /// # Errors
    /// [`StoreError`] names `to`; it must not exist yet.
    pub fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.database.snapshot(to)
    }

    /// Reads the whole file and checks that it is consistent.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first thing found.
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        self.database.integrity_check()
    }
}

#[cfg(test)]
mod tests;
