//! `node.db`: the persistent state of a node. It has sessions and their roots, uses, revocations,
//! invitations, shares and their tickets, the allow-list and blocks, rotated keys, the highest time
//! seen, and the audit log.
//!
//! Only the running node has the file open. A call that changes something is one transaction, which
//! is on disk when the call returns; a call that fails has changed nothing. A session that has
//! ended, or a capability that is revoked or used up, stays so after any crash: triggers of the
//! schema abort the reverse changes. Sessions that have expired are removed after their retention,
//! and then unknown.

mod access;
mod audit;
mod clock;
mod end;
mod examine;
mod find;
mod group;
mod group_set;
mod invitation;
mod policy;
mod remaining;
mod removal;
mod request;
mod retention;
mod rights;
pub(crate) mod row;
mod secrets;
mod session;
mod session_list;
mod session_state;
mod share;
mod start;
mod succession;
mod ticket;
mod time;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

pub use access::{AccessCapability, AccessRight, NewRight};
pub use audit::{AuditEntry, AuditFilter, NewAuditEntry};
pub use end::EndError;
pub use examine::Examined;
pub use find::Revocable;
pub use group::{GroupRight, LocalGroup};
pub use group_set::{GroupExport, GroupSetRefusal, NewGroupSet};
pub use invitation::{InvitationSummary, RedeemError, Redeemed};
pub use policy::PeerStatus;
pub use remaining::Remaining;
pub use removal::Removed;
pub use request::RequestError;
pub use retention::Pruned;
pub use rights::{ChosenRight, DenialReason, RightRequest, RightSource};
pub use session::{NewSession, Permission, RuleGrant, SessionRecord, SessionSummary};
pub use session_list::SessionFilter;
pub use session_state::SessionState;
pub use share::{NewShare, ShareRecord};
pub use start::{NewStart, StartError};
pub use succession::{AppliedSuccession, SuccessionError};
pub use ticket::{ExchangeError, Exchanged, NewTicket, TicketSummary};
pub use time::Now;

pub use levada_database::{DatabaseError as StoreError, DiskState};

pub(crate) use audit::utc;
pub(crate) use levada_database::Fault;

use levada_core::{Digest, Identity, UnixTime};
use levada_database::{Database, Kind};
use rights::{Entry, Rights};
use rusqlite::{Connection, Transaction};
use secrets::Secrets;
use time::Time;
use tokio::sync::watch;

/// The database of a running node. Calls that return no `Result` read memory only; all others wait
/// for the disk.
pub struct Store {
    database: Database,
    time: Mutex<Time>,
    rights: RwLock<Rights>,
    secrets: RwLock<Secrets>,
    /// Notified after each transaction.
    changed: watch::Sender<()>,
}

const NODE: Kind = Kind {
    application_id: 0x4c76_6e64, // "Lvnd"
    migrations: &[
        include_str!("store/schema/node-1.sql"),
        include_str!("store/schema/node-2.sql"),
        include_str!("store/schema/node-3.sql"),
        include_str!("store/schema/node-4.sql"),
        include_str!("store/schema/node-5.sql"),
        include_str!("store/schema/node-6.sql"),
        include_str!("store/schema/node-7.sql"),
        include_str!("store/schema/node-8.sql"),
    ],
    exclusive: true,
    busy_timeout: Duration::ZERO,
    shrinks: true,
};

impl Store {
    /// Opens the database at `path`; creates it, with mode 0600, if it is missing. It stays locked
    /// for other processes until the store is dropped.
    ///
    /// # Errors
    /// [`StoreError`] names the file and the problem.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with(Database::open(path, &NODE)?)
    }

    /// As [`Self::open`], in the SQLite virtual file system that is registered as `vfs`; for tests
    /// of a loss of power.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with_vfs(path: &Path, vfs: &str) -> Result<Self, StoreError> {
        Self::with(Database::open_with_vfs(path, vfs, &NODE)?)
    }

    fn with(database: Database) -> Result<Self, StoreError> {
        let (time, rights) = database.read(|c| Ok((Time::load(c)?, Rights::load(c)?)))?;
        let secrets = RwLock::new(database.read(Secrets::load)?);
        Ok(Self {
            database,
            time: Mutex::new(time),
            rights: RwLock::new(rights),
            secrets,
            changed: watch::Sender::new(()),
        })
    }

    /// Runs `work` in one transaction, which also stores the time.
    fn write<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
    ) -> Result<T, E> {
        self.write_then(work, |done| done)
    }

    /// As [`Self::write`], then calls `committed` before another transaction begins.
    fn write_then<T, U, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
        committed: impl FnOnce(T) -> U,
    ) -> Result<U, E> {
        let done = self.database.write_then(
            |tx| Ok((work(tx)?, self.store_time_in(tx)?)),
            |(done, stored)| {
                self.time_is_stored(stored);
                committed(done)
            },
        )?;
        self.changed.send_replace(());
        Ok(done)
    }

    /// Is notified after each transaction.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.database.path()
    }

    /// Writes a consistent copy of the database to the new file `to` (mode 0600), which is on disk
    /// when this returns. The copy has the roots of all sessions, and so must stay secret.
    ///
    /// # Errors
    /// [`StoreError`] names `to`; it must not exist yet.
    pub fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.database.snapshot(to)
    }

    /// Reads the whole file and checks that it is consistent.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first problem.
    pub fn integrity_check(&self) -> Result<(), StoreError> {
        self.database.integrity_check()
    }

    /// Returns true if this node has made an invitation or a ticket whose secret has this hash,
    /// which may be used, revoked or expired since.
    pub fn knows_secret(&self, hash: &Digest) -> bool {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner).contains(hash)
    }

    fn rights(&self) -> RwLockReadGuard<'_, Rights> {
        self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::write`], for changes of the rights of `identities`, which are in effect in memory
    /// when this returns. Every change of the allow-list, blocks and successions uses this.
    fn write_rights<T, E: From<StoreError>, const N: usize>(
        &self,
        identities: [Identity; N],
        work: impl FnOnce(&Transaction) -> Result<T, Fault<E>>,
    ) -> Result<T, E> {
        self.write_then(
            |tx| {
                let done = work(tx)?;
                let mut entries = Vec::new();
                for identity in identities {
                    entries.push((identity, Entry::load(tx, &identity)?));
                }
                Ok((done, entries))
            },
            |(done, entries)| {
                let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
                entries.into_iter().for_each(|(identity, entry)| rights.set(identity, entry));
                done
            },
        )
    }

    /// Stores the highest time in the transaction `tx`, unless it is stored. The caller passes the
    /// result to [`Self::time_is_stored`] after the commit.
    fn store_time_in(&self, tx: &Connection) -> rusqlite::Result<UnixTime> {
        let (highest, stored) = {
            let time = self.time();
            (time.highest(), time.stored())
        };
        if highest > stored {
            time::insert(tx, highest)?;
        }
        Ok(highest)
    }

    /// Called while no other transaction runs, so that it does not overwrite the effect of
    /// [`Self::accept_clock`].
    fn time_is_stored(&self, stored: UnixTime) {
        self.time().set_stored(stored);
    }

    /// Never locked while the disk is used, so that [`Self::now`] does not wait for it.
    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_secret(&self, hash: Digest) {
        self.secrets.write().unwrap_or_else(PoisonError::into_inner).insert(hash);
    }
}

#[cfg(test)]
mod tests;
