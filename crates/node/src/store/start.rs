//! The start of a session: the one transaction that must never happen once too often.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension};
use thiserror::Error;

use super::session::{Found, SessionState, find, first_revoked};
use super::{Fault, NewAuditEntry, Store, StoreError, audit, row};

/// Why a session was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// This node has no such session with that first link.
    #[error("no such session")]
    UnknownSession,
    /// The session has been terminated.
    #[error("the session has been terminated")]
    Terminated,
    /// A link of the chain has been revoked.
    #[error("the capability has been revoked (link {0})")]
    Revoked(LinkId),
    /// A link of the chain has been used as often as it may be.
    #[error("the capability has been used up (link {0})")]
    UsedUp(LinkId),
    /// The right to start the session has expired.
    #[error("the capability has expired")]
    Expired,
    /// The database failed; nothing was started.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Counts one use of every link of a verified chain and marks its session as started. `uses` has the
    /// id and the number of uses of each link, in the order of the chain. Session, revocations and
    /// counters are checked and changed, and the audit log is written, in one transaction, which is on
    /// disk when this returns: the service may run only then. A crash may waste a use and never gives
    /// one back.
    ///
    /// # Errors
    /// [`StartError`] says what stands against it; then nothing has been counted.
    pub fn start(
        &self,
        session: &SessionId,
        uses: &[(LinkId, u32)],
        by: &Identity,
        now: UnixTime,
    ) -> Result<(), StartError> {
        let outcome = self.database.write(|tx| {
            let found = check(tx, session, uses, now)?;
            for (link, uses) in uses {
                count(tx, session, link, *uses)?;
            }
            mark(tx, session, now)?;
            let entry = NewAuditEntry {
                identity: Some(*by),
                service: Some(&found.service),
                session: Some(*session),
                link: uses.last().map(|(link, _)| *link),
                ..NewAuditEntry::new("connect", "started")
            };
            Ok(audit::add(tx, &entry, now)?)
        });
        if let Err(StartError::Expired) = outcome {
            self.hold_time(now)?;
        }
        outcome
    }

    /// How often this link was used.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn used(&self, link: &LinkId) -> Result<u32, StoreError> {
        self.database.read(|connection| used(connection, link))
    }
}

fn check(
    connection: &Connection,
    session: &SessionId,
    uses: &[(LinkId, u32)],
    now: UnixTime,
) -> Result<Found, Fault<StartError>> {
    let refused = |error| Err(Fault::Refused(error));
    let links: Vec<LinkId> = uses.iter().map(|(link, _)| *link).collect();
    let found = match find(connection, session)? {
        Some(found) if links.first() == Some(&found.link_id) => found,
        _ => return refused(StartError::UnknownSession),
    };
    if let Some(link) = first_revoked(connection, &links)? {
        return refused(StartError::Revoked(link));
    }
    match found.state {
        SessionState::Requested | SessionState::Started => {}
        SessionState::Terminated => return refused(StartError::Terminated),
        SessionState::Revoked => return refused(StartError::Revoked(found.link_id)),
        SessionState::Expired => return refused(StartError::Expired),
    }
    if found.expires <= now {
        return refused(StartError::Expired);
    }
    Ok(found)
}

/// Read and write are one transaction: nobody counts in between.
fn count(
    connection: &Connection,
    session: &SessionId,
    link: &LinkId,
    uses: u32,
) -> Result<(), Fault<StartError>> {
    if used(connection, link)? >= uses {
        return Err(Fault::Refused(StartError::UsedUp(*link)));
    }
    let mut count = connection.prepare_cached(
        "INSERT INTO link_use (link, session, used) VALUES (?1, ?2, 1)
         ON CONFLICT (link) DO UPDATE SET used = used + 1",
    )?;
    count.execute((link.as_bytes(), session.as_bytes()))?;
    Ok(())
}

fn used(connection: &Connection, link: &LinkId) -> rusqlite::Result<u32> {
    let used = connection
        .prepare_cached("SELECT used FROM link_use WHERE link = ?1")?
        .query_row([link.as_bytes()], |row| row.get(0))
        .optional()?;
    Ok(used.unwrap_or(0))
}

fn mark(connection: &Connection, session: &SessionId, now: UnixTime) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE session SET state = 'started', started = ifnull(started, ?2) WHERE id = ?1",
        )?
        .execute((session.as_bytes(), row::from_time(now)))?;
    Ok(())
}
