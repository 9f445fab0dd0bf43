//! The allow-list, blocks, and the rights of identities.

use levada_core::{Identity, UnixTime};
use rusqlite::Connection;
use thiserror::Error;

use super::succession::successor;
use super::{NewAuditEntry, Store, StoreError, audit, row};

/// Why an identity is denied every operation.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DenialReason {
    /// The owner of the node has blocked it.
    #[error("{0} is blocked")]
    Blocked(Identity),
    /// Its key was rotated: another key has succeeded it.
    #[error("the key {0} was rotated away")]
    Rotated(Identity),
}

/// The rights of a peer after its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStatus {
    /// Every operation is denied.
    Denied(DenialReason),
    /// It may request a service, holds a session that has not ended, or was part of a chain by which one was started.
    HasRight,
    /// None of these: the limits for unproved peers apply.
    Unproved,
}

impl Store {
    /// Removes every entry of `identity` from the allow-list. False if there was none.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn disallow(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let sql = "DELETE FROM allowed WHERE identity = ?1";
            let removed = tx.execute(sql, [identity.as_bytes()])? > 0;
            if removed {
                add_entry(tx, "disallow", identity, now)?;
            }
            Ok(removed)
        })
    }

    /// Whether `identity` may request `service`: it is on the allow-list, not blocked, and its key was not rotated.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn allowed(&self, identity: &Identity, service: &str) -> Result<bool, StoreError> {
        self.is_allowed(identity, service, false)
    }

    /// As [`Self::allowed`], but an entry for every service does not count.
    ///
    /// # Errors
    /// As for [`Self::allowed`].
    pub fn allowed_by_name(&self, identity: &Identity, service: &str) -> Result<bool, StoreError> {
        self.is_allowed(identity, service, true)
    }

    fn is_allowed(
        &self,
        identity: &Identity,
        service: &str,
        by_name: bool,
    ) -> Result<bool, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1 FROM allowed
                     WHERE identity = ?1 AND (service = ?2 OR service IS NULL AND NOT ?3)
                       AND NOT EXISTS (SELECT 1 FROM blocked WHERE identity = ?1)
                       AND NOT EXISTS (SELECT 1 FROM succession WHERE old = ?1)",
                )?
                .exists((identity.as_bytes(), service, by_name))
        })
    }

    /// The rights of a peer, in one read.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn peer_status(&self, identity: &Identity) -> Result<PeerStatus, StoreError> {
        self.database.read(|connection| {
            if let Some(reason) = first_denied(connection, [identity])? {
                return Ok(PeerStatus::Denied(reason));
            }
            let has_right = has_right(connection, identity)?;
            Ok(if has_right { PeerStatus::HasRight } else { PeerStatus::Unproved })
        })
    }

    /// Blocks `identity`: every operation is denied. False if it was blocked before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn block(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let added = add_blocked(tx, identity, now)?;
            if added {
                add_entry(tx, "block", identity, now)?;
            }
            Ok(added)
        })
    }

    /// Whether `identity` is blocked.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn blocked(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| is_blocked(connection, identity))
    }

    /// Why the first of these identities that is blocked or was rotated is denied, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn denial_reason(
        &self,
        identities: &[Identity],
    ) -> Result<Option<DenialReason>, StoreError> {
        self.database.read(|connection| first_denied(connection, identities))
    }
}

fn has_right(connection: &Connection, identity: &Identity) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT 1
             WHERE EXISTS (SELECT 1 FROM allowed WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM known_identity WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM session
                           WHERE holder = ?1 AND state IN ('requested', 'started'))",
        )?
        .exists([identity.as_bytes()])
}

pub(super) fn add_allowed(
    connection: &Connection,
    identity: &Identity,
    service: Option<&str>,
    now: UnixTime,
) -> rusqlite::Result<bool> {
    let added = connection.execute(
        "INSERT INTO allowed (identity, service, added) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        (identity.as_bytes(), service, row::from_time(now)),
    )?;
    Ok(added == 1)
}

pub(super) fn add_blocked(
    connection: &Connection,
    identity: &Identity,
    now: UnixTime,
) -> rusqlite::Result<bool> {
    let added = connection.execute(
        "INSERT INTO blocked (identity, added) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        (identity.as_bytes(), row::from_time(now)),
    )?;
    Ok(added == 1)
}

pub(super) fn is_blocked(connection: &Connection, identity: &Identity) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM blocked WHERE identity = ?1")?
        .exists([identity.as_bytes()])
}

/// The reason for the first of `identities` that is blocked or was rotated.
pub(super) fn first_denied<'a>(
    connection: &Connection,
    identities: impl IntoIterator<Item = &'a Identity>,
) -> rusqlite::Result<Option<DenialReason>> {
    for identity in identities {
        if is_blocked(connection, identity)? {
            return Ok(Some(DenialReason::Blocked(*identity)));
        }
        if successor(connection, identity)?.is_some() {
            return Ok(Some(DenialReason::Rotated(*identity)));
        }
    }
    Ok(None)
}

/// Records that these identities have proved a right, so that successions of their keys are stored.
pub(super) fn add_known(connection: &Connection, identities: &[Identity]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO known_identity (identity) VALUES (?1) ON CONFLICT DO NOTHING",
    )?;
    for identity in identities {
        insert.execute([identity.as_bytes()])?;
    }
    Ok(())
}

/// Whether `identity` was ever allowed, blocked, part of a session, or part of a succession.
pub(super) fn is_known(connection: &Connection, identity: &Identity) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM allowed WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM blocked WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM known_identity WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM session WHERE holder = ?1)
                OR EXISTS (SELECT 1 FROM session WHERE requester = ?1)
                OR EXISTS (SELECT 1 FROM succession WHERE new = ?1)
                OR EXISTS (SELECT 1 FROM succession WHERE old = ?1)",
        )?
        .exists([identity.as_bytes()])
}

/// Adds an audit entry for an operation of the owner. Its text is the identity that is affected.
fn add_entry(
    connection: &Connection,
    operation: &str,
    identity: &Identity,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let text = identity.to_string();
    let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new(operation, "done") };
    audit::add(connection, &entry, now)
}
