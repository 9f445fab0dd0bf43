//! Revisions, and the changes that are kept for those who follow.

use std::str::FromStr;

use rusqlite::Connection;
use thiserror::Error;

use super::{Inner, row};
use crate::store::{Change, Event, MAX_PAGE, StoreError};

/// Not every change deletes an old one: so many at once.
const AT_ONCE: u64 = 256;

impl Inner {
    pub fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.database.read(|connection| Ok(kept(connection)?.1))?)
    }

    pub fn changes(&self, after: u64, limit: u32) -> Result<Vec<Change>, StoreError> {
        self.database.read(|connection| {
            let (kept, newest) = kept(connection)?;
            if !(kept..=newest).contains(&after) {
                return Ok(Err(StoreError::Compacted { after, kept, newest }));
            }
            changes(connection, after, limit.min(MAX_PAGE)).map(Ok)
        })?
    }
}

/// Revisions from the first up to the second can be followed.
fn kept(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
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

/// Takes the next number for a change that this transaction makes.
pub(super) fn next_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("UPDATE store SET revision = revision + 1 RETURNING revision")?
        .query_row([], |row| row::number(row, "revision"))
}

/// Notes a change of the version with the id `version`, and forgets the oldest when there are too many.
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
    let kept = revision - kept(connection)?.0;
    if kept < kept_changes.saturating_add(kept_changes.clamp(1, AT_ONCE)) {
        return Ok(());
    }
    let forgotten = row::from_number(revision - kept_changes);
    connection.prepare_cached("UPDATE store SET compacted = ?1")?.execute([forgotten])?;
    connection.prepare_cached("DELETE FROM change WHERE revision <= ?1")?.execute([forgotten])?;
    Ok(())
}

/// Not the name of an event.
#[derive(Debug, Error)]
#[error("not what happens to a version")]
pub struct EventError;

impl FromStr for Event {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        Self::ALL.into_iter().find(|event| event.as_str() == text).ok_or(EventError)
    }
}
