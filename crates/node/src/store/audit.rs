//! The audit log: who did what, when, by which capability. Rows are added and never changed.

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row, named_params};

use super::{Store, StoreError, row};

/// What is to be noted. Start from [`NewAuditEntry::new`] and set what applies.
#[derive(Clone, Copy, Debug)]
pub struct NewAuditEntry<'a> {
    /// Who did it; none if the owner of the node did.
    pub identity: Option<Identity>,
    /// What was done, in one word, as on the command line: `request`, `connect`, `join`.
    pub operation: &'a str,
    /// The service concerned.
    pub service: Option<&'a str>,
    /// The session concerned.
    pub session: Option<SessionId>,
    /// The link by whose right it was done, or that was revoked.
    pub link: Option<LinkId>,
    /// How it went, in one word: `done`, `denied`.
    pub outcome: &'a str,
    /// A line for a person; may be empty.
    pub text: &'a str,
}

impl<'a> NewAuditEntry<'a> {
    /// An entry that says only what was done and how it went.
    pub fn new(operation: &'a str, outcome: &'a str) -> Self {
        let (identity, service, session, link) = (None, None, None, None);
        Self { identity, operation, service, session, link, outcome, text: "" }
    }
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Grows with time; never used twice.
    pub id: i64,
    /// When.
    pub time: UnixTime,
    /// Who; none for the owner of the node.
    pub identity: Option<Identity>,
    /// What was done.
    pub operation: String,
    /// The service concerned.
    pub service: Option<String>,
    /// The session concerned.
    pub session: Option<SessionId>,
    /// The link concerned.
    pub link: Option<LinkId>,
    /// How it went.
    pub outcome: String,
    /// A line for a person.
    pub text: String,
}

impl Store {
    /// Adds an entry, for what changes nothing else in the store; the other calls add their own.
    ///
    /// # Errors
    /// [`StoreError`] if it is not on disk.
    pub fn record(&self, entry: &NewAuditEntry, now: UnixTime) -> Result<(), StoreError> {
        self.database.write(|tx| Ok(add(tx, entry, now)?))
    }

    /// The newest `limit` entries, newest first; those older than the id `before`, if given.
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
