//! Tickets of shares. A ticket is exchanged by as many identities as it permits, each of which
//! receives one session; only the hash of its secret is stored.

use levada_capability::{LinkId, SessionId, Ticket};
use levada_core::{Digest, Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, Row};
use thiserror::Error;

use super::end::revoke_link;
use super::session::{self, SessionRecord};
use super::{Fault, NewAuditEntry, NewSession, Store, StoreError, audit, row};

/// A ticket to store.
#[derive(Clone, Copy, Debug)]
pub struct NewTicket {
    /// The hash of its secret ([`levada_capability::Ticket::hash`]).
    pub hash: Digest,
    /// The id of its share.
    pub share: i64,
    /// When it can no longer be exchanged, and the sessions that it gave can no longer be started.
    pub expires: UnixTime,
    /// How many identities may exchange it; at least 1.
    pub peers: u32,
    /// The only identity that may exchange it; `None` for each bearer.
    pub bound: Option<Identity>,
}

/// A stored ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketSummary {
    /// The hash of its secret.
    pub hash: Digest,
    /// The id of its share.
    pub share: i64,
    /// The root of the share's content.
    pub root: [u8; 32],
    /// When it expires.
    pub expires: UnixTime,
    /// How many identities may exchange it.
    pub peers: u32,
    /// How many have.
    pub exchanged: u32,
    /// The only identity that may exchange it.
    pub bound: Option<Identity>,
    /// When it was revoked.
    pub revoked: Option<UnixTime>,
}

impl TicketSummary {
    /// Returns true if a further identity can exchange it.
    pub fn is_open(&self, now: UnixTime) -> bool {
        self.revoked.is_none() && self.expires > now && self.exchanged < self.peers
    }
}

/// What the exchange of a ticket has given.
#[derive(Debug)]
pub enum Exchanged {
    /// The new session was created.
    Created,
    /// The identity had exchanged the ticket before: its session, and the first link of it.
    Again(Box<SessionRecord>, Vec<u8>),
}

/// Why a ticket was not exchanged.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// This node has not issued this ticket.
    #[error("no such ticket")]
    Unknown,
    /// It is for another identity.
    #[error("the ticket is for another identity")]
    Bound,
    /// It was revoked, or its share was stopped, or the session that it gave this identity was
    /// revoked.
    #[error("the ticket was revoked")]
    Revoked,
    /// It has expired.
    #[error("the ticket has expired")]
    Expired,
    /// As many identities as it permits have exchanged it.
    #[error("the ticket is used up: {0} peers have exchanged it")]
    Exhausted(u32),
    /// The capability could not be made.
    #[error("cannot make a capability: {0}")]
    Failed(String),
    /// The database failed; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Stores a ticket by the hash of its secret.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk, or the share does not exist.
    pub fn add_ticket(&self, new: &NewTicket, now: UnixTime) -> Result<(), StoreError> {
        self.write_then(|tx| Ok(insert(tx, new, now)?), |()| self.add_secret(new.hash))
    }

    /// The ticket with this hash; `None` if this node has not issued it.
    ///
    /// # Errors
    /// [`StoreError`] if it could not be read.
    pub fn ticket(&self, hash: &Digest) -> Result<Option<TicketSummary>, StoreError> {
        self.database.read(|connection| find(connection, hash))
    }

    /// The tickets of a share, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn tickets(&self, share: i64) -> Result<Vec<TicketSummary>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(&select("WHERE ticket.share = ?1 ORDER BY ticket.created, hash"))?
                .query_map([share], summary)?
                .collect()
        })
    }

    /// Exchanges a ticket: creates `new` for its holder, unless that identity has a session of this
    /// ticket already, and counts the identity, in one transaction.
    ///
    /// # Errors
    /// [`ExchangeError`] is the reason of the refusal; nothing has changed.
    pub fn exchange(
        &self,
        hash: &Digest,
        new: &NewSession,
        now: UnixTime,
    ) -> Result<Exchanged, ExchangeError> {
        let outcome = self.write(|tx| {
            let ticket = find(tx, hash)?.ok_or(Fault::Refused(ExchangeError::Unknown))?;
            check(&ticket, &new.holder, now).map_err(Fault::Refused)?;
            if let Some((record, link)) = session_of(tx, hash, &new.holder)? {
                if record.state.has_ended() {
                    return Err(Fault::Refused(ExchangeError::Revoked));
                }
                return Ok(Exchanged::Again(Box::new(record), link));
            }
            if ticket.exchanged >= ticket.peers {
                return Err(Fault::Refused(ExchangeError::Exhausted(ticket.peers)));
            }
            session::create(tx, new, now)?;
            tx.execute(
                "INSERT INTO ticket_peer (hash, identity, session) VALUES (?1, ?2, ?3)",
                (hash, new.holder.as_bytes(), new.id.as_bytes()),
            )?;
            audit_exchange(tx, &ticket, new, now)?;
            Ok(Exchanged::Created)
        });
        if let Err(ExchangeError::Expired) = outcome {
            self.store_time(now)?;
        }
        outcome
    }

    /// Revokes a ticket and the sessions that it gave, which are returned. Empty if it was revoked
    /// before.
    ///
    /// # Errors
    /// [`ExchangeError::Unknown`], or the database failed.
    pub fn revoke_ticket(
        &self,
        hash: &Digest,
        by: &Identity,
        now: UnixTime,
    ) -> Result<Vec<SessionId>, ExchangeError> {
        self.write(|tx| {
            find(tx, hash)?.ok_or(Fault::Refused(ExchangeError::Unknown))?;
            Ok(revoke(tx, hash, by, now)?)
        })
    }
}

/// Revokes a ticket and its sessions, and returns the sessions.
pub(super) fn revoke(
    connection: &Connection,
    hash: &Digest,
    by: &Identity,
    now: UnixTime,
) -> rusqlite::Result<Vec<SessionId>> {
    let changed = connection.execute(
        "UPDATE ticket SET revoked = ?2 WHERE hash = ?1 AND revoked IS NULL",
        (hash, row::from_time(now)),
    )?;
    if changed == 0 {
        return Ok(Vec::new());
    }
    let sessions: Vec<(SessionId, LinkId)> = connection
        .prepare_cached(
            "SELECT session.id, link_id FROM ticket_peer JOIN session ON session.id = session
             WHERE hash = ?1 AND state IN ('requested', 'started')",
        )?
        .query_map([hash], |row| Ok((row::session_id(row, "id")?, row::link_id(row, "link_id")?)))?
        .collect::<Result<_, _>>()?;
    for (session, link) in &sessions {
        revoke_link(connection, link, session, by, now)?;
    }
    let text = format!("ticket {}", Ticket::id(hash));
    let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("revoke", "done") };
    audit::add(connection, &entry, now)?;
    Ok(sessions.into_iter().map(|(session, _)| session).collect())
}

fn check(ticket: &TicketSummary, holder: &Identity, now: UnixTime) -> Result<(), ExchangeError> {
    if ticket.bound.is_some_and(|bound| bound != *holder) {
        return Err(ExchangeError::Bound);
    }
    if ticket.revoked.is_some() {
        return Err(ExchangeError::Revoked);
    }
    if ticket.expires <= now {
        return Err(ExchangeError::Expired);
    }
    Ok(())
}

fn insert(connection: &Connection, new: &NewTicket, now: UnixTime) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO ticket (hash, share, expires, peers, bound, created)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            new.hash,
            new.share,
            row::from_time(new.expires),
            new.peers,
            new.bound.as_ref().map(Identity::as_bytes),
            row::from_time(now),
        ),
    )?;
    let text = format!("{} of share {}", Ticket::id(&new.hash), new.share);
    let entry = NewAuditEntry { text: &text, ..NewAuditEntry::new("ticket", "done") };
    audit::add(connection, &entry, now)
}

fn audit_exchange(
    connection: &Connection,
    ticket: &TicketSummary,
    new: &NewSession,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let text = format!("ticket {} of share {}", Ticket::id(&ticket.hash), ticket.share);
    let entry = NewAuditEntry {
        identity: Some(new.holder),
        service: Some(new.service),
        session: Some(new.id),
        link: Some(new.link_id),
        text: &text,
        ..NewAuditEntry::new("exchange", "done")
    };
    audit::add(connection, &entry, now)
}

fn find(connection: &Connection, hash: &Digest) -> rusqlite::Result<Option<TicketSummary>> {
    connection.prepare_cached(&select("WHERE hash = ?1"))?.query_row([hash], summary).optional()
}

/// The session that `identity` received for a ticket, and its first link.
fn session_of(
    connection: &Connection,
    hash: &Digest,
    identity: &Identity,
) -> rusqlite::Result<Option<(SessionRecord, Vec<u8>)>> {
    connection
        .prepare_cached(
            "SELECT session.* FROM ticket_peer JOIN session ON session.id = session
             WHERE hash = ?1 AND identity = ?2",
        )?
        .query_row((hash, identity.as_bytes()), |row| Ok((session::record(row)?, row.get("link")?)))
        .optional()
}

fn select(rest: &str) -> String {
    format!(
        "SELECT ticket.*, share.root,
                (SELECT count(*) FROM ticket_peer WHERE ticket_peer.hash = ticket.hash) AS exchanged
         FROM ticket JOIN share ON share.id = ticket.share {rest}"
    )
}

fn summary(row: &Row) -> rusqlite::Result<TicketSummary> {
    Ok(TicketSummary {
        hash: row.get("hash")?,
        share: row.get("share")?,
        root: row.get("root")?,
        expires: row::time(row, "expires")?,
        peers: row.get("peers")?,
        exchanged: row.get("exchanged")?,
        bound: row::optional_identity(row, "bound")?,
        revoked: row::optional_time(row, "revoked")?,
    })
}
