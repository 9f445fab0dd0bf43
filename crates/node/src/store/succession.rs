//! What happens here when somebody's key is rotated.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, Succession, UnixTime};
use rusqlite::{Connection, OptionalExtension};
use thiserror::Error;

use super::end::revoke_link;
use super::{Fault, NewAuditEntry, Store, StoreError, audit, policy, row};

/// What a succession has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Succeeded {
    /// How many entries of the allow-list now name the new key.
    pub moved: usize,
    /// The sessions whose first link named the old key, and those that it had requested for others and that
    /// the statement does not keep, with the first link: revoked, and to be ended if they run.
    pub revoked: Vec<(SessionId, LinkId)>,
    /// The sessions that it had requested for others and that go on in the name of the new key.
    pub kept: Vec<SessionId>,
}

/// Why a succession was not followed.
#[derive(Debug, Error)]
pub enum SucceedError {
    /// The old key has another successor already.
    #[error("{0} has been succeeded by another key before")]
    Already(Identity),
    /// The new key is dead itself, or the same as the old one.
    #[error("{0} is dead and cannot take the place of a key")]
    Dead(Identity),
    /// The database failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Follows a verified succession, once: the old key is dead from now on, the new one stands in its
    /// place in the allow-list, every session whose first link names the old key is revoked, and so is every session
    /// that the old key requested for others and that the statement does not keep. To be shown the same one again
    /// changes nothing; another statement for the same new key ends what it does not keep, because one of the two may be a
    /// thief's.
    ///
    /// # Errors
    /// [`SucceedError`] says what stands against it.
    pub fn succeed(
        &self,
        succession: &Succession,
        now: UnixTime,
    ) -> Result<Succeeded, SucceedError> {
        let (old, new) = (succession.old(), succession.new_identity());
        self.database.write(|tx| {
            match successor(tx, &old)? {
                Some(known) if known == new => {
                    let revoked = keep_fewer(tx, succession, now)?;
                    return Ok(Succeeded { revoked, ..Succeeded::default() });
                }
                Some(_) => return Err(Fault::Refused(SucceedError::Already(old))),
                None => {}
            }
            if old == new || successor(tx, &new)?.is_some() {
                return Err(Fault::Refused(SucceedError::Dead(new)));
            }
            insert(tx, succession, now)?;
            let moved = move_policy(tx, &old, &new, now)?;
            let kept = keep(tx, succession)?;
            let revoked = revoke_all(tx, &old, now)?;
            let text = format!("to {new}");
            let entry = NewAuditEntry {
                identity: Some(old),
                text: &text,
                ..NewAuditEntry::new("rotate", "done")
            };
            audit::add(tx, &entry, now)?;
            Ok(Succeeded { moved, revoked, kept })
        })
    }

    /// Whether `identity` was ever let in, blocked, or part of a chain by which a session was started: only then is
    /// a succession of its key worth a row.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn knows(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.database.read(|connection| policy::is_known(connection, identity))
    }

    /// The first of these identities whose key is dead, if any.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn dead(&self, identities: &[Identity]) -> Result<Option<Identity>, StoreError> {
        self.database.read(|connection| {
            for identity in identities {
                if successor(connection, identity)?.is_some() {
                    return Ok(Some(*identity));
                }
            }
            Ok(None)
        })
    }
}

pub(super) fn successor(
    connection: &Connection,
    old: &Identity,
) -> rusqlite::Result<Option<Identity>> {
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

/// The new key takes the old one's place as requester of the sessions that the statement keeps: so they go on, and
/// end with the new key. An id of another's session changes nothing.
fn keep(connection: &Connection, succession: &Succession) -> rusqlite::Result<Vec<SessionId>> {
    let mut update = connection.prepare_cached(
        "UPDATE session SET requester = ?3 WHERE id = ?1 AND requester = ?2 AND holder <> ?2",
    )?;
    let (old, new) = (succession.old(), succession.new_identity());
    let mut kept = Vec::new();
    for id in succession.keep() {
        if update.execute((id, old.as_bytes(), new.as_bytes()))? > 0 {
            kept.push(SessionId::from_bytes(*id));
        }
    }
    Ok(kept)
}

/// What an earlier statement has kept, and this one for the same new key does not.
fn keep_fewer(
    connection: &Connection,
    succession: &Succession,
    now: UnixTime,
) -> rusqlite::Result<Vec<(SessionId, LinkId)>> {
    let (old, new) = (succession.old(), succession.new_identity());
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

/// A block moves along: a new key is no way around it.
fn move_policy(
    connection: &Connection,
    old: &Identity,
    new: &Identity,
    now: UnixTime,
) -> rusqlite::Result<usize> {
    let moved = connection.execute(
        "INSERT INTO allowed (identity, service, added)
         SELECT ?2, service, ?3 FROM allowed WHERE identity = ?1
         ON CONFLICT DO NOTHING",
        (old.as_bytes(), new.as_bytes(), row::from_time(now)),
    )?;
    connection.execute("DELETE FROM allowed WHERE identity = ?1", [old.as_bytes()])?;
    if policy::is_blocked(connection, old)? {
        policy::add_blocked(connection, new, now)?;
    }
    Ok(moved)
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
