//! The audit log: time, identity, operation, capability and outcome. Rows are only added, and
//! removed after their retention.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row, ToSql, named_params};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Store, StoreError, row};

/// A new entry. Start from [`NewAuditEntry::new`] and set the fields that apply.
#[derive(Clone, Copy, Debug)]
pub struct NewAuditEntry<'a> {
    /// The identity that did it; `None` for the owner of the node.
    pub identity: Option<Identity>,
    /// The operation in one word, as on the command line: `request`, `connect`, `join`.
    pub operation: &'a str,
    /// The service concerned.
    pub service: Option<&'a str>,
    /// The session concerned.
    pub session: Option<SessionId>,
    /// The link that gave the right, or that was revoked.
    pub link: Option<LinkId>,
    /// The outcome in one word: `done`, `denied`.
    pub outcome: &'a str,
    /// A line of text for the operator; may be empty.
    pub text: &'a str,
}

impl<'a> NewAuditEntry<'a> {
    /// An entry with only an operation and an outcome.
    pub fn new(operation: &'a str, outcome: &'a str) -> Self {
        let identity = None;
        let service = None;
        let session = None;
        let link = None;
        Self { identity, operation, service, session, link, outcome, text: "" }
    }
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Ascending with time; never reused.
    pub id: i64,
    /// The time of the operation.
    pub time: UnixTime,
    /// The identity that did it; `None` for the owner of the node.
    pub identity: Option<Identity>,
    /// The operation.
    pub operation: String,
    /// The service concerned.
    pub service: Option<String>,
    /// The session concerned.
    pub session: Option<SessionId>,
    /// The link concerned.
    pub link: Option<LinkId>,
    /// The outcome.
    pub outcome: String,
    /// A line of text for the operator.
    pub text: String,
}

/// The entries to list. All conditions apply.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Entries of this identity.
    pub by: Option<Identity>,
    /// Entries about this service.
    pub service: Option<String>,
    /// Entries of this time or later.
    pub since: UnixTime,
    /// Entries with a higher id.
    pub after: i64,
}

impl Store {
    /// Adds an entry for an operation that changes nothing else in the store. The other calls add
    /// their own entries.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn record(&self, entry: &NewAuditEntry, now: UnixTime) -> Result<(), StoreError> {
        self.write(|tx| Ok(add(tx, entry, now)?))
    }

    /// The newest `limit` entries, newest first; with `before`, only entries with a lower id.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError> {
        self.database.read(|connection| {
            connection
                .prepare_cached("SELECT * FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?
                .query_map((before.unwrap_or(i64::MAX), limit), entry)?
                .collect()
        })
    }

    /// The newest `limit` entries that match `filter`, newest first.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn newest_entries(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.database.read(|connection| list(connection, filter, "DESC", limit))
    }

    /// The first `limit` entries that match `filter`, in the order of their ids, and the id after
    /// which the next call has to begin. If there are fewer, that is the newest id of all entries:
    /// those that do not match are not read again.
    ///
    /// # Errors
    /// [`StoreError`] if they could not be read.
    pub fn next_entries(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<(Vec<AuditEntry>, i64), StoreError> {
        self.database.read(|connection| {
            let entries = list(connection, filter, "ASC", limit)?;
            let after = match entries.last() {
                Some(last) if entries.len() >= limit as usize => last.id,
                _ => newest_id(connection)?.max(filter.after),
            };
            Ok((entries, after))
        })
    }
}

/// The highest id of an entry; 0 if there is none.
fn newest_id(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT ifnull(max(id), 0) FROM audit")?
        .query_row([], |row| row.get(0))
}

fn list(
    connection: &Connection,
    filter: &AuditFilter,
    order: &str,
    limit: u32,
) -> rusqlite::Result<Vec<AuditEntry>> {
    let since = row::from_time(filter.since);
    let by = filter.by.as_ref().map(Identity::as_bytes);
    let mut params: Vec<(&str, &dyn ToSql)> = vec![(":after", &filter.after), (":limit", &limit)];
    let mut conditions = "id > :after".to_owned();
    if since > 0 {
        // The first entry bounds the search: ids ascend with time, unless the clock was set back.
        conditions += " AND time >= :since AND id >= (
            SELECT id FROM audit WHERE time >= :since ORDER BY time, id LIMIT 1)";
        params.push((":since", &since));
    }
    if let Some(by) = &by {
        conditions += " AND identity = :by";
        params.push((":by", by));
    }
    if let Some(service) = &filter.service {
        // The index of an identity is narrower than that of a service.
        conditions +=
            if by.is_some() { " AND +service = :service" } else { " AND service = :service" };
        params.push((":service", service));
    }
    let sql = format!("SELECT * FROM audit WHERE {conditions} ORDER BY id {order} LIMIT :limit");
    connection.prepare_cached(&sql)?.query_map(params.as_slice(), entry)?.collect()
}

pub(super) fn add(
    connection: &Connection,
    entry: &NewAuditEntry,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO audit (time, identity, operation, service, session, link, outcome, text)
         VALUES (:time, :identity, :operation, :service, :session, :link, :outcome, :text)",
    )?;
    insert.execute(named_params! {
        ":time": row::from_time(now),
        ":identity": entry.identity.as_ref().map(Identity::as_bytes),
        ":operation": entry.operation,
        ":service": entry.service,
        ":session": entry.session.as_ref().map(SessionId::as_bytes),
        ":link": entry.link.as_ref().map(LinkId::as_bytes),
        ":outcome": entry.outcome,
        ":text": entry.text,
    })?;
    Ok(())
}

fn entry(row: &Row) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.get("id")?,
        time: row::time(row, "time")?,
        identity: row::optional_identity(row, "identity")?,
        operation: row.get("operation")?,
        service: row.get("service")?,
        session: row.get::<_, Option<_>>("session")?.map(SessionId::from_bytes),
        link: row.get::<_, Option<_>>("link")?.map(LinkId::from_bytes),
        outcome: row.get("outcome")?,
        text: row.get("text")?,
    })
}

/// A time in texts: RFC 3339, in UTC.
pub(crate) fn utc(time: UnixTime) -> String {
    let seconds = i64::try_from(time.0).ok();
    let date = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_else(|| time.to_string())
}
