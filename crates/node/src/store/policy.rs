//! Who may request what, and who is shut out.

use levada_core::{Identity, UnixTime};
use rusqlite::Connection;
use thiserror::Error;

use super::succession::successor;
use super::{NewAuditEntry, Store, StoreError, audit, row};

/// Why an identity may do nothing at this node.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Barred {
    /// The node's owner has blocked it.
    #[error("{0} is blocked")]
    Blocked(Identity),
    /// Another key has taken its place.
    #[error("the key {0} was rotated away")]
    Dead(Identity),
}

/// An entry of the allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Who may request.
    pub identity: Identity,
    /// What; none for every service.
    pub service: Option<String>,
    /// Since when.
    pub added: UnixTime,
}

/// The policy of this node, in the order in which it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The allow-list.
    pub allowed: Vec<Allowed>,
    /// Who is blocked, since when.
    pub blocked: Vec<(Identity, UnixTime)>,
    /// Keys that are dead, and what took the place of each.
    pub dead: Vec<(Identity, Identity)>,
}

impl Store {
    /// Lets `identity` request `service`, or every service if none. False if it could before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn allow(
        &self,
        identity: &Identity,
        service: Option<&str>,
        now: UnixTime,
    ) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let added = add_allowed(tx, identity, service, now)?;
            if added {
                note(tx, "allow", identity, service, now)?;
            }
            Ok(added)
        })
    }

    /// Takes `identity` off the allow-list, for every service. False if it was not on it.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn disallow(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.remove("DELETE FROM allowed WHERE identity = ?1", "disallow", identity, now)
    }

    /// Whether `identity` may request `service`: it is on the allow-list, not blocked and not dead.
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

    /// Whether `identity` may request any service, holds a session that has not ended, or was part of a chain by which one
    /// was started; and is neither blocked nor dead.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn has_right(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT 1
                     WHERE (EXISTS (SELECT 1 FROM allowed WHERE identity = ?1)
                         OR EXISTS (SELECT 1 FROM known_identity WHERE identity = ?1)
                         OR EXISTS (SELECT 1 FROM session
                                    WHERE holder = ?1 AND state IN ('requested', 'started')))
                       AND NOT EXISTS (SELECT 1 FROM blocked WHERE identity = ?1)
                       AND NOT EXISTS (SELECT 1 FROM succession WHERE old = ?1)",
                )?
                .exists([identity.as_bytes()])
        })
    }

    /// Shuts `identity` out altogether. False if it was before.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn block(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let added = add_blocked(tx, identity, now)?;
            if added {
                note(tx, "block", identity, None, now)?;
            }
            Ok(added)
        })
    }

    /// Lets `identity` back in to what else it is allowed. False if it was not blocked.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn unblock(&self, identity: &Identity, now: UnixTime) -> Result<bool, StoreError> {
        self.remove("DELETE FROM blocked WHERE identity = ?1", "unblock", identity, now)
    }

    /// Whether `identity` is shut out.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn blocked(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| is_blocked(connection, identity))
    }

    /// Whether one of these identities is blocked or was rotated away: the first that is.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn barred(&self, identities: &[Identity]) -> Result<Option<Barred>, StoreError> {
        self.database.read(|connection| first_barred(connection, identities))
    }

    /// All of the policy.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn policy(&self) -> Result<Policy, StoreError> {
        self.database.read(policy)
    }

    fn remove(
        &self,
        sql: &str,
        operation: &str,
        identity: &Identity,
        now: UnixTime,
    ) -> Result<bool, StoreError> {
        self.database.write(|tx| {
            let removed = tx.execute(sql, [identity.as_bytes()])? > 0;
            if removed {
                note(tx, operation, identity, None, now)?;
            }
            Ok(removed)
        })
    }
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

/// The first of `identities` that is blocked or was rotated away.
pub(super) fn first_barred<'a>(
    connection: &Connection,
    identities: impl IntoIterator<Item = &'a Identity>,
) -> rusqlite::Result<Option<Barred>> {
    for identity in identities {
        if is_blocked(connection, identity)? {
            return Ok(Some(Barred::Blocked(*identity)));
        }
        if successor(connection, identity)?.is_some() {
            return Ok(Some(Barred::Dead(*identity)));
        }
    }
    Ok(None)
}

/// Notes that these identities have proved a right here: from now on a succession of theirs is kept.
pub(super) fn remember(connection: &Connection, identities: &[Identity]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO known_identity (identity) VALUES (?1) ON CONFLICT DO NOTHING",
    )?;
    for identity in identities {
        insert.execute([identity.as_bytes()])?;
    }
    Ok(())
}

/// Whether a right of `identity` was ever granted, proved or blocked here.
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

/// The owner's own doing: the text names whom it concerns.
fn note(
    connection: &Connection,
    operation: &str,
    identity: &Identity,
    service: Option<&str>,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let text = identity.to_string();
    let entry = NewAuditEntry { service, text: &text, ..NewAuditEntry::new(operation, "done") };
    audit::add(connection, &entry, now)
}

fn policy(connection: &Connection) -> rusqlite::Result<Policy> {
    let allowed = connection
        .prepare("SELECT * FROM allowed ORDER BY rowid")?
        .query_map([], |row| {
            Ok(Allowed {
                identity: row::identity(row, "identity")?,
                service: row.get("service")?,
                added: row::time(row, "added")?,
            })
        })?
        .collect::<Result<_, _>>()?;
    let blocked = connection
        .prepare("SELECT * FROM blocked ORDER BY added, identity")?
        .query_map([], |row| Ok((row::identity(row, "identity")?, row::time(row, "added")?)))?
        .collect::<Result<_, _>>()?;
    let dead = connection
        .prepare("SELECT * FROM succession ORDER BY added, old")?
        .query_map([], |row| Ok((row::identity(row, "old")?, row::identity(row, "new")?)))?
        .collect::<Result<_, _>>()?;
    Ok(Policy { allowed, blocked, dead })
}
