//! The allow-list, blocks, and the rights of identities.

use levada_core::{Identity, UnixTime};
use rusqlite::Connection;

use super::{
    ChosenRight, DenialReason, NewAuditEntry, RightRequest, Store, StoreError, audit, row,
};

/// The rights of a peer after its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerStatus {
    /// Every operation is denied.
    Denied(DenialReason),
    /// It may request a service, holds a session that has not ended, or was part of a chain by
    /// which one was started.
    HasRight,
    /// None of these: the limits for unproved peers apply.
    Unproved,
}

impl Store {
    /// Returns true if `identity` may request `service`: it is on the allow-list, not blocked, and
    /// its key was not rotated.
    pub fn allowed(&self, identity: &Identity, service: &str, now: UnixTime) -> bool {
        self.permitted_until(identity, service, false, now).is_some()
    }

    /// The time until which `identity` may request `service`; `None` if it may not. With `by_name`,
    /// a right to every service does not count.
    pub fn permitted_until(
        &self,
        identity: &Identity,
        service: &str,
        by_name: bool,
        now: UnixTime,
    ) -> Option<UnixTime> {
        let request = RightRequest { service, by_name, starts: 1, expires: None };
        self.chosen_right(identity, &request, now).map(|right| right.until)
    }

    /// The right of `identity` that a request uses; `None` if none permits it. Of the rights with
    /// enough uses, the one that lasts longest bounds the end of the session.
    pub fn chosen_right(
        &self,
        identity: &Identity,
        request: &RightRequest<'_>,
        now: UnixTime,
    ) -> Option<ChosenRight> {
        self.rights().choose(identity, request, now)
    }

    /// Returns true if a right of `identity` to `service` has expired.
    pub fn right_has_expired(&self, identity: &Identity, service: &str, now: UnixTime) -> bool {
        self.rights().has_expired(identity, service, now)
    }

    /// The rights of a peer if the lists in memory decide about them. `None` if the database does:
    /// see [`Self::peer_status`].
    pub fn listed_status(&self, identity: &Identity, now: UnixTime) -> Option<PeerStatus> {
        let rights = self.rights();
        match rights.first_denied([identity]) {
            Some(reason) => Some(PeerStatus::Denied(reason)),
            None => rights.allows_any(identity, now).then_some(PeerStatus::HasRight),
        }
    }

    /// The rights of a peer.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn peer_status(
        &self,
        identity: &Identity,
        now: UnixTime,
    ) -> Result<PeerStatus, StoreError> {
        if let Some(status) = self.listed_status(identity, now) {
            return Ok(status);
        }
        let has_right = self.database.read(|connection| has_right(connection, identity))?;
        Ok(if has_right { PeerStatus::HasRight } else { PeerStatus::Unproved })
    }

    /// Blocks `identity`: every operation is denied. False if it was blocked before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn block(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.write_rights([*identity], |tx| {
            let added = add_blocked(tx, identity, now)?;
            if added {
                add_entry(tx, "block", identity, now)?;
            }
            Ok(added)
        })
    }

    /// The identities that are blocked in the store.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn all_blocked(&self) -> Result<Vec<Identity>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT identity FROM blocked")?
                .query_map([], |row| row::identity(row, "identity"))?
                .collect()
        })
    }

    /// Whether `identity` is blocked.
    pub fn blocked(&self, identity: &Identity) -> bool {
        self.rights().is_blocked(identity)
    }

    /// Why the first of these identities that is blocked or was rotated is denied, if there is one.
    pub fn denial_reason<'a>(
        &self,
        identities: impl IntoIterator<Item = &'a Identity>,
    ) -> Option<DenialReason> {
        self.rights().first_denied(identities)
    }
}

/// Whether an identity that is not on the allow-list has a right.
fn has_right(connection: &Connection, identity: &Identity) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT 1
             WHERE EXISTS (SELECT 1 FROM known_identity WHERE identity = ?1)
                OR EXISTS (SELECT 1 FROM session
                           WHERE holder = ?1 AND state IN ('requested', 'started')
                             AND used_up = 0)",
        )?
        .exists([identity.as_bytes()])
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
                OR EXISTS (SELECT 1 FROM group_member WHERE identity = ?1)
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
