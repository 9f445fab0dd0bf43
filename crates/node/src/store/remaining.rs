//! The sessions that an identity can still use without a permission to request further ones.

use std::collections::BTreeSet;

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::{Row, named_params};

use super::session::{first_link_uses, summary};
use super::{SessionSummary, Store, StoreError, row};

/// A session that concerns an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// The session, which has not ended.
    pub session: SessionSummary,
    /// Whether it has not expired, and its first link has a use left.
    pub can_start: bool,
    /// The last link by which the identity has started it.
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
            // The audit log has no index of identities: one pass over it.
            let mut unexpired = connection.prepare(
                "WITH start AS (
                     SELECT session, link, max(id) FROM audit
                     WHERE identity = :identity AND operation = 'connect' GROUP BY session)
                 SELECT session.*, ifnull(used, 0) AS starts, start.link AS by_link
                 FROM session LEFT JOIN start ON start.session = session.id
                              LEFT JOIN link_use ON link_use.link = link_id
                 WHERE state IN ('requested', 'started') AND expires > :now
                   AND (requester = :identity OR holder = :identity
                        OR start.link NOT IN (SELECT link FROM revocation))
                 ORDER BY +created DESC, id LIMIT :limit",
            )?;
            let params = named_params! {
                ":identity": identity.as_bytes(), ":now": row::from_time(now), ":limit": limit,
            };
            let found = unexpired.query_map(params, |row| remaining(row, now))?;
            let mut all = found.collect::<rusqlite::Result<Vec<_>>>()?;
            all.retain(|one| one.can_start || running.contains(&one.session.id));
            let listed: BTreeSet<_> = all.iter().map(|one| one.session.id).collect();
            let mut by_id = connection.prepare(
                "SELECT session.*, ifnull(used, 0) AS starts, NULL AS by_link
                 FROM session LEFT JOIN link_use ON link_use.link = link_id WHERE id = ?1",
            )?;
            for id in running.difference(&listed) {
                all.extend(
                    by_id
                        .query_map([id.as_bytes()], |row| remaining(row, now))?
                        .collect::<rusqlite::Result<Vec<_>>>()?,
                );
            }
            Ok(all)
        })
    }
}

fn remaining(row: &Row, now: UnixTime) -> rusqlite::Result<Remaining> {
    let session = summary(row)?;
    let uses = first_link_uses(row)?;
    let has_expired = row::has_expired(session.expires, now);
    let can_start = !session.state.has_ended() && !has_expired && session.starts < uses;
    let link = row.get::<_, Option<_>>("by_link")?.map(LinkId::from_bytes);
    Ok(Remaining { session, can_start, link })
}
