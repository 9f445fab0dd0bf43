//! Lists of sessions.

use std::collections::HashSet;

use levada_capability::SessionId;
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, OptionalExtension, ToSql};

use super::session::summary;
use super::{SessionSummary, Store, StoreError, row};

/// The sessions to list. All conditions apply.
#[derive(Clone, Debug)]
pub struct SessionFilter {
    /// The sessions that run and that `by` and `service` include; they are first in the list.
    pub running: HashSet<SessionId>,
    /// No others than those in `running`.
    pub only_running: bool,
    /// Sessions that this identity requested, that name it in their first link, or that it has
    /// started.
    pub by: Option<Identity>,
    /// Sessions of this service.
    pub service: Option<String>,
    /// Sessions that were requested at this time or later.
    pub since: UnixTime,
    /// The maximum number of sessions.
    pub limit: u32,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self {
            running: HashSet::new(),
            only_running: false,
            by: None,
            service: None,
            since: UnixTime(0),
            limit: 1000,
        }
    }
}

impl Store {
    /// The sessions that match `filter`: those that run, then the others, newest first each.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionSummary>, StoreError> {
        self.database.read(|connection| {
            let mut all = by_ids(connection, &filter.running)?;
            all.retain(|session| session.created >= filter.since);
            if !filter.only_running {
                let others = newest(connection, filter)?;
                all.extend(others.into_iter().filter(|one| !filter.running.contains(&one.id)));
            }
            all.truncate(filter.limit as usize);
            Ok(all)
        })
    }

    /// The sessions that `requester` requested for other identities and that have not ended, newest
    /// first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn requested_for_others(
        &self,
        requester: &Identity,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT session.*, ifnull(used, 0) AS starts
                     FROM session LEFT JOIN link_use ON link_use.link = link_id
                     WHERE requester = ?1 AND holder <> ?1 AND state IN ('requested', 'started')
                     ORDER BY created DESC, id LIMIT ?2",
                )?
                .query_map((requester.as_bytes(), limit), summary)?
                .collect()
        })
    }

    /// The number of sessions that can be started.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be counted.
    pub fn open_sessions(&self) -> Result<u64, StoreError> {
        let now = self.time().highest();
        self.database.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT count(*) FROM session
                     WHERE state IN ('requested', 'started') AND used_up = 0 AND expires > ?1",
                )?
                .query_row([row::from_time(now)], |row| row.get::<_, u32>(0).map(u64::from))
        })
    }
}

/// The sessions with these ids, newest first.
pub(super) fn by_ids(
    connection: &Connection,
    ids: &HashSet<SessionId>,
) -> rusqlite::Result<Vec<SessionSummary>> {
    let mut found = Vec::new();
    for id in ids {
        found.extend(by_id(connection, id)?);
    }
    found.sort_by(|one, other| other.created.cmp(&one.created).then(one.id.cmp(&other.id)));
    Ok(found)
}

/// A session; `None` if there is none.
pub(super) fn by_id(
    connection: &Connection,
    id: &SessionId,
) -> rusqlite::Result<Option<SessionSummary>> {
    connection
        .prepare_cached(
            "SELECT session.*, ifnull(used, 0) AS starts
             FROM session LEFT JOIN link_use ON link_use.link = link_id WHERE id = ?1",
        )?
        .query_row([id.as_bytes()], summary)
        .optional()
}

/// The newest sessions that match the conditions, and as many more as there are running ones.
fn newest(
    connection: &Connection,
    filter: &SessionFilter,
) -> rusqlite::Result<Vec<SessionSummary>> {
    let more = u32::try_from(filter.running.len()).unwrap_or(u32::MAX);
    let limit = filter.limit.saturating_add(more);
    let since = row::from_time(filter.since);
    let by = filter.by.as_ref().map(Identity::as_bytes);
    let mut params: Vec<(&str, &dyn ToSql)> = vec![(":since", &since), (":limit", &limit)];
    let mut conditions = "created >= :since".to_owned();
    if let Some(service) = &filter.service {
        // The index of an identity is narrower than that of a service.
        conditions +=
            if by.is_some() { " AND +service = :service" } else { " AND service = :service" };
        params.push((":service", service));
    }
    if let Some(by) = &by {
        conditions = of_identity(&conditions);
        params.push((":by", by));
    }
    let sql = format!(
        "SELECT session.*, ifnull(used, 0) AS starts
         FROM session LEFT JOIN link_use ON link_use.link = link_id
         WHERE {conditions} ORDER BY created DESC, id LIMIT :limit"
    );
    connection.prepare_cached(&sql)?.query_map(params.as_slice(), summary)?.collect()
}

/// The conditions for sessions of an identity. Each part reads its own index, newest first, and no
/// more than the limit.
fn of_identity(conditions: &str) -> String {
    let part = |from: &str| {
        format!(
            "SELECT id FROM (SELECT session.id AS id FROM {from} AND {conditions}
                             ORDER BY created DESC LIMIT :limit)"
        )
    };
    let parts = [
        part("session WHERE requester = :by"),
        part("session WHERE holder = :by"),
        part(
            "link_use AS passed JOIN session ON session.id = passed.session
             WHERE passed.identity = :by AND passed.passed_on = 1",
        ),
    ];
    format!("session.id IN ({})", parts.join(" UNION "))
}
