//! Ends sessions: termination, revocation, expiry, and invalidation of all.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::Connection;
use thiserror::Error;

use super::session::find;
use super::{Fault, NewAuditEntry, Store, StoreError, audit, row};

/// Why a session was not terminated or revoked.
#[derive(Debug, Error)]
pub enum EndError {
    /// This node has no such session.
    #[error("no such session")]
    UnknownSession,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Revokes the link `link` of `session`, and thereby every link derived from it. False if it
    /// was revoked before.
    ///
    /// # Errors
    /// [`EndError::UnknownSession`], or the database failed.
    pub fn revoke(
        &self,
        link: &LinkId,
        session: &SessionId,
        by: &Identity,
        now: UnixTime,
    ) -> Result<bool, EndError> {
        self.write(|tx| {
            if find(tx, session)?.is_none() {
                return Err(Fault::Refused(EndError::UnknownSession));
            }
            Ok(revoke_link(tx, link, session, by, now)?)
        })
    }

    /// Revokes the first link of `session`, and thereby the whole session. False if it was revoked
    /// before.
    ///
    /// # Errors
    /// [`EndError::UnknownSession`], or the database failed.
    pub fn revoke_session(
        &self,
        session: &SessionId,
        by: &Identity,
        now: UnixTime,
    ) -> Result<bool, EndError> {
        self.write(|tx| {
            let found = find(tx, session)?.ok_or(Fault::Refused(EndError::UnknownSession))?;
            Ok(revoke_link(tx, &found.link_id, session, by, now)?)
        })
    }

    /// Ends a session permanently. False if it had ended before.
    ///
    /// # Errors
    /// [`EndError::UnknownSession`], or the database failed.
    pub fn terminate(
        &self,
        session: &SessionId,
        by: &Identity,
        now: UnixTime,
    ) -> Result<bool, EndError> {
        self.write(|tx| {
            let found = find(tx, session)?.ok_or(Fault::Refused(EndError::UnknownSession))?;
            if !end(tx, session, now)? {
                return Ok(false);
            }
            let entry = NewAuditEntry {
                identity: Some(*by),
                service: Some(&found.service),
                session: Some(*session),
                ..NewAuditEntry::new("terminate", "done")
            };
            audit::add(tx, &entry, now)?;
            Ok(true)
        })
    }

    /// Marks the sessions that have expired without a start, and returns their number. Does nothing
    /// while the clock has jumped: the jump may be an error, and the mark is permanent.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn expire_unstarted(&self, now: UnixTime) -> Result<usize, StoreError> {
        if self.is_jump(now) || !self.database.read(|connection| any_unstarted(connection, now))? {
            return Ok(0);
        }
        self.advance(now);
        self.write(|tx| {
            Ok(tx.execute(
                "UPDATE session SET state = 'expired', ended = ?1
                 WHERE state = 'requested' AND expires <= ?1",
                [row::from_time(now)],
            )?)
        })
    }

    /// Terminates every session that has not ended, and voids every unused invitation. Needed after
    /// a restore, because uses and revocations since the backup are unknown, and after a rotation
    /// of the node's own key. Returns the number of sessions. `reason` is written to the audit log.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn invalidate_sessions(&self, reason: &str, now: UnixTime) -> Result<usize, StoreError> {
        self.write(|tx| {
            let ended = tx.execute(
                "UPDATE session SET state = 'terminated', ended = ?1
                 WHERE state IN ('requested', 'started')",
                [row::from_time(now)],
            )?;
            tx.execute(
                "UPDATE invitation SET used = ?1 WHERE used IS NULL",
                [row::from_time(now)],
            )?;
            tx.execute(
                "UPDATE ticket SET revoked = ?1 WHERE revoked IS NULL",
                [row::from_time(now)],
            )?;
            let text = format!("{ended} sessions terminated: {reason}");
            let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("invalidate", "done") };
            audit::add(tx, &entry, now)?;
            Ok(ended)
        })
    }
}

/// Revokes a link. False if it was revoked before; then nothing is written.
pub(super) fn revoke_link(
    connection: &Connection,
    link: &LinkId,
    session: &SessionId,
    by: &Identity,
    now: UnixTime,
) -> rusqlite::Result<bool> {
    let added = connection.execute(
        "INSERT INTO revocation (link, session, identity, time) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING",
        (link.as_bytes(), session.as_bytes(), by.as_bytes(), row::from_time(now)),
    )?;
    if added == 0 {
        return Ok(false);
    }
    connection.execute(
        "UPDATE session SET state = 'revoked', ended = ?3
         WHERE id = ?1 AND link_id = ?2 AND state IN ('requested', 'started')",
        (session.as_bytes(), link.as_bytes(), row::from_time(now)),
    )?;
    let entry = NewAuditEntry {
        identity: Some(*by),
        session: Some(*session),
        link: Some(*link),
        ..NewAuditEntry::new("revoke", "done")
    };
    audit::add(connection, &entry, now)?;
    Ok(true)
}

/// Terminates a session. False if it had ended before.
fn end(connection: &Connection, id: &SessionId, now: UnixTime) -> rusqlite::Result<bool> {
    let ended = connection.execute(
        "UPDATE session SET state = 'terminated', ended = ?2
         WHERE id = ?1 AND state IN ('requested', 'started')",
        (id.as_bytes(), row::from_time(now)),
    )?;
    Ok(ended == 1)
}

fn any_unstarted(connection: &Connection, now: UnixTime) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM session WHERE state = 'requested' AND expires <= ?1")?
        .exists([row::from_time(now)])
}
