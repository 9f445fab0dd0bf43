//! The audit log: an append-only table of the changes with their publishers.

use std::str::FromStr;

use levada_core::{Identity, UnixTime};
use rusqlite::{Connection, Row, named_params};
use thiserror::Error;

use super::inner::Inner;
use super::row;
use crate::model::{Key, Version};
use crate::store::{Action, AuditEntry, MAX_PAGE, StoreError};

/// The optional columns of an entry.
pub(super) struct Details<'a> {
    pub identity: Option<Identity>,
    pub key: Option<&'a Key>,
    pub version: Option<&'a Version>,
    pub text: &'a str,
}

impl Inner {
    pub fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(self.database.read(|connection| {
            let mut query = connection
                .prepare_cached("SELECT * FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
            let limit = limit.min(MAX_PAGE);
            query.query_map((before.unwrap_or(i64::MAX), limit), entry)?.collect()
        })?)
    }
}

/// Appends an entry.
pub(super) fn add(
    connection: &Connection,
    action: Action,
    outcome: &str,
    details: &Details,
    now: UnixTime,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO audit (time, identity, action, key, version, outcome, text)
         VALUES (:time, :identity, :action, :key, :version, :outcome, :text)",
    )?;
    insert.execute(named_params! {
        ":time": row::from_time(now),
        ":identity": details.identity.as_ref().map(Identity::as_bytes),
        ":action": action.as_str(),
        ":key": details.key.map(Key::to_string),
        ":version": details.version.map(Version::to_string),
        ":outcome": outcome,
        ":text": details.text,
    })?;
    Ok(())
}

fn entry(row: &Row) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.get("id")?,
        time: row::time(row, "time")?,
        identity: row::identity(row, "identity")?,
        action: row::parsed(row, "action")?,
        key: row::optional(row, "key")?,
        version: row::optional(row, "version")?,
        outcome: row.get("outcome")?,
        text: row.get("text")?,
    })
}

/// The text is not the name of an action.
#[derive(Debug, Error)]
#[error("not an action of the audit log")]
pub struct ActionError;

impl FromStr for Action {
    type Err = ActionError;

    fn from_str(text: &str) -> Result<Self, ActionError> {
        Self::ALL.into_iter().find(|action| action.as_str() == text).ok_or(ActionError)
    }
}
