//! Starts of sessions, counted so that no link is used more often than it allows.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension};
use thiserror::Error;

use super::rights::DenialReason;
use super::session::{self, Found, NewSession, find, first_revoked};
use super::session_state::SessionState;
use super::{Fault, NewAuditEntry, Store, StoreError, audit, policy, request, row};

/// A start of a session by a verified chain.
#[derive(Clone, Copy, Debug)]
pub struct NewStart<'a> {
    /// The session.
    pub session: SessionId,
    /// The id and the maximum number of uses of each link, in the order of the chain.
    pub uses: &'a [(LinkId, u32)],
    /// The identity of each link: none of them may be blocked or rotated.
    pub identities: &'a [Identity],
    /// When the last link expires.
    pub expires: UnixTime,
    /// The requester of the session, as the caller has read it.
    pub requester: Identity,
    /// The identity that starts it.
    pub by: Identity,
    /// A summary for the audit log; may be empty.
    pub about: &'a str,
}

/// Why a session was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// No right permits the request of the session.
    #[error("no right permits this request")]
    NotPermitted,
    /// This node has no such session with that first link.
    #[error("no such session")]
    UnknownSession,
    /// The session has been terminated.
    #[error("the session has been terminated")]
    Terminated,
    /// A link of the chain has been revoked.
    #[error("the capability has been revoked (link {0})")]
    Revoked(LinkId),
    /// A link of the chain has no use left.
    #[error("the capability has been used up (link {0})")]
    UsedUp(LinkId),
    /// The right to start the session has expired.
    #[error("the capability has expired")]
    Expired,
    /// The requester or an identity of the chain is blocked or was rotated.
    #[error(transparent)]
    Denied(DenialReason),
    /// The database failed; nothing was started.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Counts one use of every link of a verified chain and marks its session as started. One
    /// transaction checks the session, revocations, expiry, uses, and the keys of the requester and
    /// the chain, and writes the uses and the audit log. It is on disk when this returns; only then
    /// may the service run. A crash may lose a use, and never restores one.
    ///
    /// # Errors
    /// [`StartError`] is the reason of the refusal; nothing was counted.
    pub fn start(&self, start: &NewStart, now: UnixTime) -> Result<(), StartError> {
        let outcome = self.write(|tx| self.count_start(tx, start, now));
        if let Err(StartError::Expired) = outcome {
            self.store_time(now)?;
        }
        outcome
    }

    /// Creates a session and counts its first start in one transaction. The service may run after
    /// this has returned.
    ///
    /// # Errors
    /// [`StartError`] is the reason of the refusal; the session was not created.
    pub fn create_and_start(
        &self,
        new: &NewSession,
        start: &NewStart,
        now: UnixTime,
    ) -> Result<(), StartError> {
        let outcome = self.write_request(new, |tx| {
            if !request::use_permission(tx, new, now)? {
                return Err(Fault::Refused(StartError::NotPermitted));
            }
            session::create(tx, new, now)?;
            self.count_start(tx, start, now)
        });
        if let Err(StartError::NotPermitted | StartError::Expired) = outcome {
            self.store_time(now)?;
        }
        outcome
    }

    /// The number of uses of a link.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn used(&self, link: &LinkId) -> Result<u32, StoreError> {
        self.database.read(|connection| used(connection, link))
    }

    /// Checks and counts a start in the transaction of the caller.
    fn count_start(
        &self,
        tx: &Connection,
        start: &NewStart,
        now: UnixTime,
    ) -> Result<(), Fault<StartError>> {
        let found = self.check_start(tx, start, now)?;
        for (position, (link, uses)) in start.uses.iter().enumerate() {
            let identity = start.identities.get(position);
            count_use(tx, &start.session, (link, *uses), (position, identity))?;
        }
        mark_started(tx, start, now)?;
        policy::add_known(tx, start.identities)?;
        let entry = NewAuditEntry {
            identity: Some(start.by),
            service: Some(&found.service),
            session: Some(start.session),
            link: start.uses.last().map(|(link, _)| *link),
            text: start.about,
            ..NewAuditEntry::new("connect", "started")
        };
        Ok(audit::add(tx, &entry, now)?)
    }

    fn check_start(
        &self,
        connection: &Connection,
        start: &NewStart,
        now: UnixTime,
    ) -> Result<Found, Fault<StartError>> {
        let refused = |error| Err(Fault::Refused(error));
        let links: Vec<LinkId> = start.uses.iter().map(|(link, _)| *link).collect();
        let found = match find(connection, &start.session)? {
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
        if row::has_expired(found.expires.min(start.expires), now) {
            return refused(StartError::Expired);
        }
        if found.requester != start.requester {
            // The requester's key was rotated after the caller has read the session.
            return refused(StartError::Denied(DenialReason::Rotated(start.requester)));
        }
        // During a transaction the rights in memory are those of the tables.
        match self.denial_reason(start.identities.iter().chain([&found.requester])) {
            Some(reason) => refused(StartError::Denied(reason)),
            None => Ok(found),
        }
    }
}

/// Counts one use of a link. The caller's transaction includes the read and the write, so that
/// concurrent starts cannot exceed `uses`.
fn count_use(
    connection: &Connection,
    session: &SessionId,
    (link, uses): (&LinkId, u32),
    (position, identity): (usize, Option<&Identity>),
) -> Result<(), Fault<StartError>> {
    if used(connection, link)? >= uses {
        return Err(Fault::Refused(StartError::UsedUp(*link)));
    }
    let mut count = connection.prepare_cached(
        "INSERT INTO link_use (link, session, used, identity, passed_on) VALUES (?1, ?2, 1, ?3, ?4)
         ON CONFLICT (link) DO UPDATE SET used = used + 1",
    )?;
    let identity = identity.map(Identity::as_bytes);
    count.execute((link.as_bytes(), session.as_bytes(), identity, position > 0))?;
    Ok(())
}

fn used(connection: &Connection, link: &LinkId) -> rusqlite::Result<u32> {
    let used = connection
        .prepare_cached("SELECT used FROM link_use WHERE link = ?1")?
        .query_row([link.as_bytes()], |row| row.get(0))
        .optional()?;
    Ok(used.unwrap_or(0))
}

/// Marks the session as started, and as used up if its first link is.
fn mark_started(connection: &Connection, start: &NewStart, now: UnixTime) -> rusqlite::Result<()> {
    let is_used_up = match start.uses.first() {
        Some((link, uses)) => used(connection, link)? >= *uses,
        None => false,
    };
    connection
        .prepare_cached(
            "UPDATE session SET state = 'started', started = ifnull(started, ?2), used_up = ?3
             WHERE id = ?1",
        )?
        .execute((start.session.as_bytes(), row::from_time(now), is_used_up))?;
    Ok(())
}
