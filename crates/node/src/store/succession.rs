//! Applies rotations of the keys of peers.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, Succession, UnixTime};
use rusqlite::{Connection, OptionalExtension};
use thiserror::Error;

use super::end::revoke_link;
use super::{Fault, NewAuditEntry, Store, StoreError, audit, group, group_set, policy, row};

/// The changes of a succession.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedSuccession {
    /// The number of entries of the allow-list that now name the new key.
    pub moved: usize,
    /// Revoked sessions with their first links: those whose first link named the old key, and those
    /// that it had requested for others and that the statement does not keep. The caller ends their
    /// runs.
    pub revoked: Vec<(SessionId, LinkId)>,
    /// The sessions that the old key had requested for others and whose requester is now the new
    /// key.
    pub kept: Vec<SessionId>,
}

/// Why a succession was not applied.
#[derive(Debug, Error)]
pub enum SuccessionError {
    /// The old key has another successor already.
    #[error("the key {0} has another successor already")]
    AlreadySucceeded(Identity),
    /// The new key was rotated itself, or is the same as the old one.
    #[error("the key {0} cannot succeed another key: it was rotated itself, or both are the same")]
    Rotated(Identity),
    /// The database failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Applies a verified succession: the old key is denied from now on, and its entries of the
    /// allow-list and its blocks move to the new key. Sessions whose first link names the old key
    /// are revoked, and those that the old key requested for others unless the statement keeps
    /// them. The same statement again changes nothing. A different statement for the same new key
    /// revokes the sessions that it does not keep, because one of the two may have been signed with
    /// a stolen key.
    ///
    /// # Errors
    /// [`SuccessionError`] is the reason of the refusal; nothing has changed.
    pub fn apply_succession(
        &self,
        succession: &Succession,
        now: UnixTime,
    ) -> Result<AppliedSuccession, SuccessionError> {
        let old = succession.old();
        let new = succession.new_identity();
        self.write_rights([old, new], |tx| {
            match successor(tx, &old)? {
                Some(known) if known == new => {
                    let revoked = revoke_unkept(tx, succession, now)?;
                    return Ok(AppliedSuccession { revoked, ..AppliedSuccession::default() });
                }
                Some(_) => return Err(Fault::Refused(SuccessionError::AlreadySucceeded(old))),
                None => {}
            }
            if old == new || successor(tx, &new)?.is_some() {
                return Err(Fault::Refused(SuccessionError::Rotated(new)));
            }
            insert(tx, succession, now)?;
            let moved = move_policy(tx, &old, &new, now)?;
            move_tickets(tx, &old, &new)?;
            group::move_members(tx, &old, &new)?;
            group_set::move_sets(tx, &old, &new)?;
            let kept = set_requester(tx, succession)?;
            let revoked = revoke_all(tx, &old, now)?;
            let text = format!("to {new}");
            let entry = NewAuditEntry {
                identity: Some(old),
                text: &text,
                ..NewAuditEntry::new("rotate", "done")
            };
            audit::add(tx, &entry, now)?;
            Ok(AppliedSuccession { moved, revoked, kept })
        })
    }

    /// Whether `identity` was ever allowed, blocked, part of a session, or part of a succession.
    /// Only then is a succession of its key stored.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn is_known(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| policy::is_known(connection, identity))
    }

    /// Whether the key `identity` was rotated.
    pub fn rotated(&self, identity: &Identity) -> bool {
        self.rights().is_rotated(identity)
    }

    /// All rotated keys with their successors, in the order in which the successions were stored.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn rotations(&self) -> Result<Vec<(Identity, Identity)>, StoreError> {
        self.database.read(rotations)
    }
}

pub(super) fn rotations(connection: &Connection) -> rusqlite::Result<Vec<(Identity, Identity)>> {
    connection
        .prepare("SELECT old, new FROM succession ORDER BY added, old")?
        .query_map([], |row| Ok((row::identity(row, "old")?, row::identity(row, "new")?)))?
        .collect()
}

fn successor(connection: &Connection, old: &Identity) -> rusqlite::Result<Option<Identity>> {
    connection
        .prepare_cached("SELECT new FROM succession WHERE old = ?1")?
        .query_row([old.as_bytes()], |row| row::identity(row, "new"))
        .optional()
}

fn insert(connection: &Connection, succession: &Succession, now: UnixTime) -> rusqlite::Result<()> {
    let message = succession.to_wire();
    connection.execute(
        "INSERT INTO succession (old, new, time, signature, added, keep)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            message.old,
            message.new,
            row::from_time(succession.time()),
            message.signature,
            row::from_time(now),
            message.keep.concat(),
        ),
    )?;
    Ok(())
}

/// Sets the new key as the requester of the sessions that the statement keeps, so that they
/// continue, and end with the new key. An id of a session of another requester is ignored.
fn set_requester(
    connection: &Connection,
    succession: &Succession,
) -> rusqlite::Result<Vec<SessionId>> {
    let mut update = connection.prepare_cached(
        "UPDATE session SET requester = ?3 WHERE id = ?1 AND requester = ?2 AND holder <> ?2",
    )?;
    let old = succession.old();
    let new = succession.new_identity();
    let mut kept = Vec::new();
    for id in succession.keep() {
        if update.execute((id, old.as_bytes(), new.as_bytes()))? > 0 {
            kept.push(SessionId::from_bytes(*id));
        }
    }
    Ok(kept)
}

/// Revokes the sessions that the stored statement keeps and this one, for the same new key, does
/// not.
fn revoke_unkept(
    connection: &Connection,
    succession: &Succession,
    now: UnixTime,
) -> rusqlite::Result<Vec<(SessionId, LinkId)>> {
    let old = succession.old();
    let new = succession.new_identity();
    let mut kept = connection.prepare_cached(
        "SELECT session.id, link_id FROM session, succession
         WHERE succession.old = ?1 AND requester = ?2 AND holder <> ?2
           AND state IN ('requested', 'started') AND session.created <= succession.added
           AND instr(hex(succession.keep), hex(session.id)) > 0",
    )?;
    let kept: Vec<(SessionId, LinkId)> = kept
        .query_map((old.as_bytes(), new.as_bytes()), |row| {
            Ok((row::session_id(row, "id")?, row::link_id(row, "link_id")?))
        })?
        .collect::<Result<_, _>>()?;
    let mut revoked = Vec::new();
    for (session, link) in kept {
        if !succession.keep().contains(session.as_bytes()) {
            revoke_link(connection, &link, &session, &old, now)?;
            revoked.push((session, link));
        }
    }
    Ok(revoked)
}

/// Moves the entries of the allow-list to the new key, and copies a block, so that a rotation does
/// not lift it. Returns the number of moved entries.
fn move_policy(
    connection: &Connection,
    old: &Identity,
    new: &Identity,
    now: UnixTime,
) -> rusqlite::Result<usize> {
    let moved = connection.execute(
        "INSERT INTO allowed (identity, service, added, source, expires, uses)
         SELECT ?2, service, ?3, source, expires, uses FROM allowed WHERE identity = ?1
         ON CONFLICT (identity, ifnull(service, '')) DO UPDATE
         SET added = excluded.added, source = excluded.source, expires = excluded.expires,
             uses = excluded.uses
         WHERE allowed.expires <= excluded.added OR allowed.uses = 0",
        (old.as_bytes(), new.as_bytes(), row::from_time(now)),
    )?;
    connection.execute("DELETE FROM allowed WHERE identity = ?1", [old.as_bytes()])?;
    if policy::is_blocked(connection, old)? {
        policy::add_blocked(connection, new, now)?;
    }
    Ok(moved)
}

/// Binds the tickets that are for the old key to the new one.
fn move_tickets(connection: &Connection, old: &Identity, new: &Identity) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE ticket SET bound = ?2 WHERE bound = ?1",
        (old.as_bytes(), new.as_bytes()),
    )?;
    Ok(())
}

fn revoke_all(
    connection: &Connection,
    identity: &Identity,
    now: UnixTime,
) -> rusqlite::Result<Vec<(SessionId, LinkId)>> {
    let sessions: Vec<_> = connection
        .prepare(
            "SELECT id, link_id FROM session
             WHERE (holder = ?1 OR requester = ?1) AND state IN ('requested', 'started')",
        )?
        .query_map([identity.as_bytes()], |row| {
            Ok((row::session_id(row, "id")?, row::link_id(row, "link_id")?))
        })?
        .collect::<Result<_, _>>()?;
    for (session, link) in &sessions {
        revoke_link(connection, link, session, identity, now)?;
    }
    Ok(sessions)
}
