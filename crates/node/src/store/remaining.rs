//! The sessions that an identity can still use without a permission to request further ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::Connection;

use super::session_list::by_id;
use super::{SessionSummary, Store, StoreError, row};

/// A session that concerns an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// The session, which has not ended.
    pub session: SessionSummary,
    /// Whether it has not expired, and its first link has a use left.
    pub can_start: bool,
    /// A link that names the identity and by which it was started, other than the first one.
    pub link: Option<LinkId>,
}

impl Store {
    /// The sessions, newest first and at most `limit`, that can be started and that `identity`
    /// requested, holds by their first link, or has started with a capability that was passed on to
    /// it. Then those of `running` that are not among them.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn remaining(
        &self,
        identity: &Identity,
        running: &BTreeSet<SessionId>,
        now: UnixTime,
        limit: u32,
    ) -> Result<Vec<Remaining>, StoreError> {
        self.database.read(|connection| {
            let links = passed_links(connection, identity, now, limit)?;
            let mut all = Vec::new();
            for session in startable(connection, identity, &links, now, limit)? {
                all.extend(remaining(connection, &session, &links, now)?);
            }
            all.retain(|one| one.can_start || running.contains(&one.session.id));
            all.sort_by_key(|one| Reverse((one.session.created, one.session.id)));
            all.truncate(limit as usize);
            let listed: BTreeSet<_> = all.iter().map(|one| one.session.id).collect();
            for session in running.difference(&listed) {
                all.extend(remaining(connection, session, &BTreeMap::new(), now)?);
            }
            Ok(all)
        })
    }
}

/// The sessions that can be started and that were started by a link that names `identity`, is not
/// the first one of its session, and is not revoked; each with the link. At most `limit`.
fn passed_links(
    connection: &Connection,
    identity: &Identity,
    now: UnixTime,
    limit: u32,
) -> rusqlite::Result<BTreeMap<SessionId, LinkId>> {
    connection
        .prepare_cached(
            "SELECT session, link_use.link AS link
             FROM link_use JOIN session ON session.id = link_use.session
             WHERE identity = ?1 AND passed_on = 1
               AND state IN ('requested', 'started') AND used_up = 0 AND expires > ?2
               AND link_use.link NOT IN (SELECT link FROM revocation)
             LIMIT ?3",
        )?
        .query_map((identity.as_bytes(), row::from_time(now), limit), |row| {
            Ok((row::session_id(row, "session")?, row::link_id(row, "link")?))
        })?
        .collect()
}

/// The sessions that can be started and that `identity` requested, holds by their first link, or
/// uses by one of `links`.
fn startable(
    connection: &Connection,
    identity: &Identity,
    links: &BTreeMap<SessionId, LinkId>,
    now: UnixTime,
    limit: u32,
) -> rusqlite::Result<BTreeSet<SessionId>> {
    let mut all: BTreeSet<SessionId> = links.keys().copied().collect();
    for column in ["requester", "holder"] {
        let mut of_identity = connection.prepare_cached(&format!(
            "SELECT id FROM session
             WHERE {column} = ?1 AND state IN ('requested', 'started') AND used_up = 0
               AND expires > ?2
             ORDER BY created DESC, id LIMIT ?3"
        ))?;
        let params = (identity.as_bytes(), row::from_time(now), limit);
        let found = of_identity.query_map(params, |row| row::session_id(row, "id"))?;
        for session in found {
            all.insert(session?);
        }
    }
    Ok(all)
}

fn remaining(
    connection: &Connection,
    id: &SessionId,
    links: &BTreeMap<SessionId, LinkId>,
    now: UnixTime,
) -> rusqlite::Result<Option<Remaining>> {
    let session = by_id(connection, id)?;
    Ok(session.map(|session| Remaining {
        can_start: session.starts_left(now) > 0,
        link: links.get(id).copied(),
        session,
    }))
}
