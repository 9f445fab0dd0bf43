//! Revisions, and the last changes, which are kept for clients that follow them.

use std::str::FromStr;

use rusqlite::Connection;
use thiserror::Error;

use super::inner::Inner;
use super::row;
use crate::store::{Change, Event, MAX_PAGE, StoreError};

/// How many old changes are deleted at once, so that not every change deletes one.
const COMPACT_BATCH: u64 = 256;

impl Inner {
    pub fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.database.read(|connection| Ok(available(connection)?.1))?)
    }

    pub fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError> {
        self.database.read(|connection| {
            let (kept, newest) = available(connection)?;
            if !(kept..=newest).contains(&after) {
                return Ok(Err(StoreError::Compacted { after, kept, newest }));
            }
            changes(connection, after, limit.min(MAX_PAGE)).map(Ok)
        })?
    }
}

/// The lowest revision behind which all changes are kept, and the revision of the last change.
fn available(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let mut query = connection.prepare_cached("SELECT compacted, revision FROM store")?;
    query.query_row([], |row| Ok((row::number(row, "compacted")?, row::number(row, "revision")?)))
}

fn changes(connection: &Connection, after: u64, limit: u32) -> rusqlite::Result<Vec<Change>> {
    let mut query = connection.prepare_cached(
        "SELECT change.revision AS revision, kind, name, version.version AS version, event
         FROM change JOIN version ON version.id = change.version
         JOIN object ON object.id = version.object
         WHERE change.revision > ?1 ORDER BY change.revision LIMIT ?2",
    )?;
    let changes = query.query_map((row::from_number(after), limit), |row| {
        Ok(Change {
            revision: row::number(row, "revision")?,
            key: row::key(row)?,
            version: row::parsed(row, "version")?,
            event: row::parsed(row, "event")?,
        })
    })?;
    changes.collect()
}

/// Allocates the revision of a change in this transaction.
pub(super) fn next_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("UPDATE store SET revision = revision + 1 RETURNING revision")?
        .query_row([], |row| row::number(row, "revision"))
}

/// Takes over the revision of a change, which is higher than any before.
pub(super) fn set_revision(connection: &Connection, revision: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE store SET revision = ?1")?
        .execute([row::from_number(revision)])
        .map(drop)
}

/// Records a change of the version with the id `version`, and deletes the oldest changes if there
/// are too many.
pub(super) fn add(
    connection: &Connection,
    revision: u64,
    version: i64,
    event: Event,
    kept_changes: u64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO change (revision, version, event) VALUES (?1, ?2, ?3)")?
        .execute((row::from_number(revision), version, event.as_str()))?;
    let kept = revision - available(connection)?.0;
    if kept < kept_changes.saturating_add(kept_changes.clamp(1, COMPACT_BATCH)) {
        return Ok(());
    }
    let compacted = row::from_number(revision - kept_changes);
    connection.prepare_cached("UPDATE store SET compacted = ?1")?.execute([compacted])?;
    connection.prepare_cached("DELETE FROM change WHERE revision <= ?1")?.execute([compacted])?;
    Ok(())
}

/// The text is not the name of an event.
#[derive(Debug, Error)]
#[error("not an event of a version")]
pub struct EventError;

impl FromStr for Event {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        Self::ALL.into_iter().find(|event| event.as_str() == text).ok_or(EventError)
    }
}
