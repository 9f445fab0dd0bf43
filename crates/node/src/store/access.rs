//! Rights to request sessions: given, listed, used and removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use levada_capability::SessionId;
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row, named_params};

use super::rights::{self, RightSource};
use super::session_list::{by_id, by_ids};
use super::{NewAuditEntry, SessionSummary, Store, StoreError, audit, row};

/// A right to give.
#[derive(Clone, Copy, Debug)]
pub struct NewRight<'a> {
    /// The identity that receives it.
    pub identity: Identity,
    /// The service; `None` for every service.
    pub service: Option<&'a str>,
    /// The time from which it permits nothing.
    pub expires: UnixTime,
    /// The number of starts that it permits; `None` for any number.
    pub uses: Option<u32>,
}

/// A right of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRight {
    /// The identity.
    pub identity: Identity,
    /// The service; `None` for every service.
    pub service: Option<String>,
    /// Its origin.
    pub source: RightSource,
    /// The time at which it was given.
    pub added: UnixTime,
    /// The time from which it permits nothing.
    pub expires: UnixTime,
    /// The starts that it still permits; `None` for any number.
    pub uses: Option<u32>,
}

impl AccessRight {
    /// Returns true if it permits something at `now`.
    pub fn is_valid(&self, now: UnixTime) -> bool {
        rights::is_valid(self.expires, self.uses, now)
    }
}

/// A capability by which an identity can start a session, or has started one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessCapability {
    /// The identity: it requested the session, its first link names it, or it has started it.
    pub identity: Identity,
    /// The session.
    pub session: SessionSummary,
    /// The starts that its first link still permits.
    pub uses: u32,
}

impl Store {
    /// Gives a right to a known identity. A right to the same service replaces an earlier one.
    ///
    /// # Errors
    /// [`StoreError`] if they are not on disk.
    pub fn add_right(&self, new: &NewRight, now: UnixTime) -> Result<(), StoreError> {
        self.write_rights([new.identity], |tx| {
            add(tx, new, RightSource::Owner, now)?;
            let text = limits_text(new);
            let entry = NewAuditEntry {
                service: new.service,
                text: &text,
                ..NewAuditEntry::new("allow", "done")
            };
            Ok(audit::add(tx, &entry, now)?)
        })
    }

    /// All rights, in the order of the identities.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn access_rights(&self) -> Result<Vec<AccessRight>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM allowed ORDER BY identity, service")?
                .query_map([], right)?
                .collect()
        })
    }

    /// The capabilities of the sessions in `running`, and of those that can be started; newest first
    /// each. Sessions that `own`, the node, requested for itself are not among them. At most `limit`
    /// sessions.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn access_capabilities(
        &self,
        own: &Identity,
        running: &HashSet<SessionId>,
        now: UnixTime,
        limit: usize,
    ) -> Result<Vec<AccessCapability>, StoreError> {
        let is_own = |one: &SessionSummary| one.requester == *own && one.holder == *own;
        self.database.read(|connection| {
            let mut found = by_ids(connection, running)?;
            found.retain(|session| !is_own(session));
            for id in startable(connection, now, limit)? {
                if found.len() >= limit {
                    break;
                }
                let session = by_id(connection, &id)?.filter(|session| !is_own(session));
                found.extend(session.filter(|session| {
                    session.starts_left(now) > 0 && !running.contains(&session.id)
                }));
            }
            found.truncate(limit);
            with_holders(connection, found, now)
        })
    }

    /// The last start of each service by each identity, or only by `only`, as far as the log has
    /// one. The number of entries does not matter: the index is searched once for each result.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn last_starts(
        &self,
        only: Option<&Identity>,
    ) -> Result<HashMap<Identity, Vec<(String, UnixTime)>>, StoreError> {
        let first = only.copied().unwrap_or(Identity::from_bytes([0; 32]));
        let last = only.copied().unwrap_or(Identity::from_bytes([0xff; 32]));
        self.database.read(|connection| {
            let mut query = connection.prepare_cached(LAST_STARTS)?;
            let found = query.query_map((first.as_bytes(), last.as_bytes()), |row| {
                let start = (row.get("service")?, row::time(row, "time")?);
                Ok((row::identity(row, "identity")?, start))
            })?;
            let mut starts: HashMap<_, Vec<_>> = HashMap::new();
            for found in found {
                let (identity, start) = found?;
                starts.entry(identity).or_default().push(start);
            }
            Ok(starts)
        })
    }
}

/// The last start of each service by each identity from ?1 to ?2, by descending steps through the
/// index of starts: from the last start of a pair to the one of the pair before.
const LAST_STARTS: &str = "
    WITH RECURSIVE last (id, identity, service) AS (
        SELECT * FROM (
            SELECT id, identity, service FROM audit
            WHERE operation = 'connect' AND identity BETWEEN ?1 AND ?2 AND service IS NOT NULL
            ORDER BY identity DESC, service DESC, id DESC LIMIT 1
        )
        UNION ALL
        SELECT audit.id, audit.identity, audit.service FROM last, audit
        WHERE audit.id = ifnull(
            (SELECT id FROM audit
             WHERE operation = 'connect' AND identity = last.identity AND service < last.service
             ORDER BY service DESC, id DESC LIMIT 1),
            (SELECT id FROM audit
             WHERE operation = 'connect' AND identity >= ?1 AND identity < last.identity
               AND service IS NOT NULL
             ORDER BY identity DESC, service DESC, id DESC LIMIT 1)
        )
    )
    SELECT last.identity, last.service, audit.time FROM last JOIN audit USING (id)";

/// The newest sessions that can be started. They may include used-up ones of earlier versions, and
/// those of the node, so they are ten times as many as are listed.
fn startable(
    connection: &Connection,
    now: UnixTime,
    limit: usize,
) -> rusqlite::Result<Vec<SessionId>> {
    let limit = i64::try_from(limit.saturating_mul(10)).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT id FROM session
             WHERE state IN ('requested', 'started') AND used_up = 0 AND expires > ?1
             ORDER BY created DESC, id LIMIT ?2",
        )?
        .query_map((row::from_time(now), limit), |row| row::session_id(row, "id"))?
        .collect()
}

/// The identity that receives a right, and its limits, for the audit log.
fn limits_text(new: &NewRight) -> String {
    let mut text = new.identity.to_string();
    if new.expires != UnixTime::NEVER {
        text += &format!(" until {}", audit::utc(new.expires));
    }
    if let Some(uses) = new.uses {
        text += &format!(", uses: {uses}");
    }
    text
}

/// A capability of each session for its requester, its first holder, and the identities of other
/// links by which it was started and that are not revoked.
fn with_holders(
    connection: &Connection,
    sessions: Vec<SessionSummary>,
    now: UnixTime,
) -> rusqlite::Result<Vec<AccessCapability>> {
    let mut links = connection.prepare_cached(
        "SELECT DISTINCT identity FROM link_use
         WHERE session = ?1 AND identity IS NOT NULL
           AND link NOT IN (SELECT link FROM revocation)",
    )?;
    let mut all = Vec::new();
    for session in sessions {
        let uses = session.starts_left(now);
        let of_links =
            links.query_map([session.id.as_bytes()], |row| row::identity(row, "identity"))?;
        let mut identities: BTreeSet<Identity> = of_links.collect::<Result<_, _>>()?;
        identities.extend([session.requester, session.holder]);
        all.extend(identities.into_iter().map(|identity| AccessCapability {
            identity,
            session: session.clone(),
            uses,
        }));
    }
    Ok(all)
}

/// Gives a right. One of the owner replaces an earlier one to the same service; one of an
/// invitation only a right that has ended, so that an open invitation widens no limited right.
pub(super) fn add(
    connection: &Connection,
    new: &NewRight,
    source: RightSource,
    now: UnixTime,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO allowed (identity, service, added, source, expires, uses)
         VALUES (:identity, :service, :now, :source, :expires, :uses)
         ON CONFLICT (identity, ifnull(service, '')) DO UPDATE
         SET added = :now, source = :source, expires = :expires, uses = :uses
         WHERE :source = 'owner' OR allowed.expires <= :now OR allowed.uses = 0",
        named_params! {
            ":identity": new.identity.as_bytes(),
            ":service": new.service,
            ":now": row::from_time(now),
            ":source": source.as_str(),
            ":expires": row::from_time(new.expires),
            ":uses": new.uses,
        },
    )?;
    Ok(())
}

fn right(row: &Row) -> rusqlite::Result<AccessRight> {
    Ok(AccessRight {
        identity: row::identity(row, "identity")?,
        service: row.get("service")?,
        source: RightSource::read(row)?,
        added: row::time(row, "added")?,
        expires: row::time(row, "expires")?,
        uses: row.get("uses")?,
    })
}
