//! Search, and the maintenance of its full-text index.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension};

use super::inner::Inner;
use super::words::Query;
use super::{row, words};
use crate::model::version::latest_order;
use crate::model::{Key, Kind, Version};
use crate::store::{Hit, MAX_PAGE, SearchCursor, StoreError};

/// The position of a search: among the hits by name or the others, and the last object.
#[derive(Clone, Copy)]
struct Position {
    named: bool,
    object: i64,
}

impl Position {
    const START: Self = Self { named: true, object: 0 };

    fn parse(cursor: &SearchCursor) -> Result<Self, StoreError> {
        let at = cursor.0.split_at_checked(1).ok_or(StoreError::Cursor)?;
        let named = match at.0 {
            "n" => true,
            "t" => false,
            _ => return Err(StoreError::Cursor),
        };
        let digits = Some(at.1).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let object = digits.and_then(|text| text.parse().ok()).ok_or(StoreError::Cursor)?;
        Ok(Self { named, object })
    }

    fn cursor(self) -> SearchCursor {
        SearchCursor(format!("{}{}", if self.named { "n" } else { "t" }, self.object))
    }
}

impl Inner {
    pub fn search(
        &self,
        query: &str,
        kind: Option<Kind>,
        after: Option<&SearchCursor>,
        limit: u32,
    ) -> Result<Vec<Hit>, StoreError> {
        let start = after.map_or(Ok(Position::START), Position::parse)?;
        let Some(query) = Query::parse(query, kind)? else {
            return Ok(Vec::new());
        };
        let limit = limit.min(MAX_PAGE) as usize;
        Ok(self.database.read(|connection| {
            let mut hits = Vec::new();
            let mut others = start;
            if start.named {
                find(connection, &query.named(), start, limit, &mut hits)?;
                others = Position { named: false, object: 0 };
            }
            find(connection, &query.elsewhere(), others, limit - hits.len(), &mut hits)?;
            Ok(hits)
        })?)
    }
}

/// Finds hits in the order of the objects. FTS5 reads its index in that order, so nothing is
/// sorted.
fn find(
    connection: &Connection,
    expression: &str,
    after: Position,
    limit: usize,
    hits: &mut Vec<Hit>,
) -> rusqlite::Result<()> {
    if limit == 0 {
        return Ok(());
    }
    let mut query = connection.prepare_cached(
        "SELECT object.id AS id, kind, name, version.version AS version
         FROM search CROSS JOIN object ON object.id = search.rowid
         CROSS JOIN version ON version.id = object.shown
         WHERE search MATCH ?1 AND search.rowid > ?2 ORDER BY search.rowid LIMIT ?3",
    )?;
    let limit = row::from_number(limit as u64);
    let found = query.query_map((expression, after.object, limit), |row| {
        let position = Position { object: row.get("id")?, ..after };
        let key = row::key(row)?;
        let version = row::parsed(row, "version")?;
        Ok(Hit { key, version, cursor: position.cursor() })
    })?;
    for hit in found {
        hits.push(hit?);
    }
    Ok(())
}

/// Updates of the full-text index, which are applied at the end of a transaction.
///
/// A statement with a trigger that can abort opens a savepoint, which makes FTS5 flush its pending
/// rows. Applied last, they are flushed once.
#[derive(Default)]
pub(super) struct IndexUpdates<'a>(BTreeMap<i64, Words<'a>>);

struct Words<'a> {
    /// The index has no entry of the object.
    is_new: bool,
    words: &'a str,
}

impl<'a> IndexUpdates<'a> {
    /// Sets the words of an object.
    pub fn add(&mut self, object: i64, is_new: bool, words: &'a str) {
        let entry = self.0.entry(object).or_insert(Words { is_new, words });
        entry.words = words;
    }
}

/// Applies the updates.
pub(super) fn update(connection: &Connection, updates: &IndexUpdates) -> rusqlite::Result<()> {
    for (object, Words { is_new, words }) in &updates.0 {
        match is_new {
            true => insert_words(connection, *object, words)?,
            false => set_words(connection, *object, Some(words))?,
        }
    }
    Ok(())
}

/// Selects the version `id`, just published, as the newest of its object if none is newer. True if
/// it was selected.
pub(super) fn set_if_newest(
    connection: &Connection,
    object: i64,
    id: i64,
    version: &Version,
) -> rusqlite::Result<bool> {
    let mut query = connection.prepare_cached(
        "SELECT version.version AS version FROM object JOIN version ON version.id = object.shown
         WHERE object.id = ?1",
    )?;
    let shown: Option<Version> =
        query.query_row([object], |row| row::parsed(row, "version")).optional()?;
    if shown.is_some_and(|shown| latest_order(version, &shown).is_lt()) {
        return Ok(false);
    }
    set_newest(connection, object, Some(id))?;
    Ok(true)
}

/// Selects the newest version of an object again after one was yanked or restored. Its id; `None`
/// if all are yanked.
pub(super) fn select_newest(connection: &Connection, object: i64) -> rusqlite::Result<Option<i64>> {
    let newest = newest(connection, object)?;
    set_newest(connection, object, newest)?;
    Ok(newest)
}

/// As [`select_newest`], and indexes its words.
pub(super) fn update_newest(
    connection: &Connection,
    object: i64,
    key: &Key,
) -> rusqlite::Result<()> {
    let Some(id) = select_newest(connection, object)? else {
        return set_words(connection, object, None);
    };
    let mut query = connection.prepare_cached("SELECT descriptor FROM version WHERE id = ?1")?;
    let descriptor: Vec<u8> = query.query_row([id], |row| row.get(0))?;
    set_words(connection, object, Some(&words::of_version(key, &descriptor)))
}

/// The objects with a selected pre-release although they have a release, as earlier builds selected
/// it.
pub(super) fn with_wrong_newest(connection: &Connection) -> rusqlite::Result<Vec<(i64, Key)>> {
    let mut query = connection.prepare(
        "SELECT object.id AS id, kind, name, object.shown AS shown
         FROM object JOIN version ON version.id = object.shown WHERE version.version LIKE '%-%'",
    )?;
    let rows = query.query_map([], |row| {
        Ok((row.get::<_, i64>("id")?, row.get::<_, i64>("shown")?, row::key(row)?))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (object, shown, key) = row?;
        if newest(connection, object)? != Some(shown) {
            found.push((object, key));
        }
    }
    Ok(found)
}

/// The newest version of an object that is not yanked, which `latest` selects.
fn newest(connection: &Connection, object: i64) -> rusqlite::Result<Option<i64>> {
    let mut query = connection.prepare_cached(
        "SELECT id, version FROM version WHERE object = ?1 AND NOT yanked ORDER BY id",
    )?;
    let mut newest: Option<(i64, Version)> = None;
    let rows = query
        .query_map([object], |row| Ok((row.get("id")?, row::parsed::<Version>(row, "version")?)))?;
    for row in rows {
        let (id, version) = row?;
        if newest.as_ref().is_none_or(|(_, newest)| latest_order(&version, newest).is_ge()) {
            newest = Some((id, version));
        }
    }
    Ok(newest.map(|(id, _)| id))
}

fn set_newest(connection: &Connection, object: i64, version: Option<i64>) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE object SET shown = ?2 WHERE id = ?1")?
        .execute((object, version))?;
    Ok(())
}

fn insert_words(connection: &Connection, object: i64, words: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO search (rowid, words) VALUES (?1, ?2)")?
        .execute((object, words))?;
    Ok(())
}

/// Replaces the words of an object, if the index has some; `None` for one that shows no version.
pub(super) fn set_words(
    connection: &Connection,
    object: i64,
    words: Option<&str>,
) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM search WHERE rowid = ?1")?.execute([object])?;
    words.map_or(Ok(()), |words| insert_words(connection, object, words))
}
