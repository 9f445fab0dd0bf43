//! Removes rights, with all that follows from them.

use std::collections::BTreeSet;

use levada_capability::{LinkId, SessionId};
use levada_core::{Digest, Identity, UnixTime};
use rusqlite::Connection;

use super::end::revoke_link;
use super::session::summary;
use super::{NewAuditEntry, Store, StoreError, audit, row, ticket};

/// The effects of [`Store::remove_access`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of rights that were removed.
    pub rights: usize,
    /// The sessions that were revoked: the identity requested them, or their first link names it.
    pub sessions: Vec<SessionId>,
    /// The links of other sessions that were revoked: they name the identity.
    pub links: Vec<LinkId>,
    /// The tickets that were revoked, which only the identity could exchange.
    pub tickets: usize,
}

impl Store {
    /// Removes the right of `identity` to `service`, or every right if `None`. Returns the number
    /// of rights that were removed.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn disallow(
        &self,
        identity: &Identity,
        service: Option<&str>,
        now: UnixTime,
    ) -> Result<usize, StoreError> {
        self.write_rights([*identity], |tx| Ok(remove(tx, identity, service, now)?))
    }

    /// Removes every right of `identity`, and revokes in the same transaction:
    ///
    /// - the sessions that it requested, or whose first link names it,
    /// - the links that name it in sessions of others, with what it has passed on of them,
    /// - the tickets that only it could exchange.
    ///
    /// `by` is the identity of the node.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk; nothing has changed.
    pub fn remove_access(
        &self,
        identity: &Identity,
        by: &Identity,
        now: UnixTime,
    ) -> Result<Removed, StoreError> {
        self.write_rights([*identity], |tx| {
            let rights = remove(tx, identity, None, now)?;
            let sessions = revoke_sessions(tx, identity, by, now)?;
            let links = revoke_links(tx, identity, by, now)?;
            let tickets = revoke_tickets(tx, identity, by, now)?;
            Ok(Removed { rights, sessions, links, tickets })
        })
    }
}

fn remove(
    connection: &Connection,
    identity: &Identity,
    service: Option<&str>,
    now: UnixTime,
) -> rusqlite::Result<usize> {
    let removed = connection.execute(
        "DELETE FROM allowed WHERE identity = ?1 AND (?2 IS NULL OR service = ?2)",
        (identity.as_bytes(), service),
    )?;
    if removed > 0 {
        let text = identity.to_string();
        let entry =
            NewAuditEntry { service, text: &text, ..NewAuditEntry::new("disallow", "done") };
        audit::add(connection, &entry, now)?;
    }
    Ok(removed)
}

/// Revokes the sessions that the identity requested or holds by their first link. Those that are
/// used up stay as they are: their number grows with each request.
fn revoke_sessions(
    connection: &Connection,
    identity: &Identity,
    by: &Identity,
    now: UnixTime,
) -> rusqlite::Result<Vec<SessionId>> {
    let mut found = BTreeSet::new();
    for column in ["requester", "holder"] {
        let mut of_identity = connection.prepare_cached(&format!(
            "SELECT session.*, ifnull(used, 0) AS starts
             FROM session LEFT JOIN link_use ON link_use.link = link_id
             WHERE {column} = ?1 AND state IN ('requested', 'started') AND used_up = 0"
        ))?;
        for session in of_identity.query_map([identity.as_bytes()], summary)? {
            let session = session?;
            if session.starts < session.uses {
                found.insert((session.id, session.link_id));
            }
        }
    }
    for (session, link) in &found {
        revoke_link(connection, link, session, by, now)?;
    }
    Ok(found.into_iter().map(|(session, _)| session).collect())
}

/// Revokes the links that name the identity, of sessions of others.
fn revoke_links(
    connection: &Connection,
    identity: &Identity,
    by: &Identity,
    now: UnixTime,
) -> rusqlite::Result<Vec<LinkId>> {
    let found: Vec<(SessionId, LinkId)> = connection
        .prepare(
            "SELECT session.id AS id, link_use.link AS link_id
             FROM link_use JOIN session ON session.id = link_use.session
             WHERE link_use.identity = ?1 AND link_use.passed_on = 1
               AND state IN ('requested', 'started')
               AND link_use.link NOT IN (SELECT link FROM revocation)
             ORDER BY link_use.link",
        )?
        .query_map([identity.as_bytes()], |row| {
            Ok((row::session_id(row, "id")?, row::link_id(row, "link_id")?))
        })?
        .collect::<Result<_, _>>()?;
    for (session, link) in &found {
        revoke_link(connection, link, session, by, now)?;
    }
    Ok(found.into_iter().map(|(_, link)| link).collect())
}

fn revoke_tickets(
    connection: &Connection,
    identity: &Identity,
    by: &Identity,
    now: UnixTime,
) -> rusqlite::Result<usize> {
    let found: Vec<Digest> = connection
        .prepare("SELECT hash FROM ticket WHERE bound = ?1 AND revoked IS NULL")?
        .query_map([identity.as_bytes()], |row| row.get("hash"))?
        .collect::<Result<_, _>>()?;
    for hash in &found {
        ticket::revoke(connection, hash, by, now)?;
    }
    Ok(found.len())
}
