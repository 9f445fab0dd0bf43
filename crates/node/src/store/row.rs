//! Converts between columns and the types of this project.

use std::str::FromStr;

use levada_capability::{LinkId, SessionId};
use levada_core::{Identity, UnixTime};
pub(crate) use levada_home::known::row::{from_time, identity, time, to_time};
use rusqlite::Row;
use rusqlite::types::Type;

/// Returns true if `expires` has passed. A row stores "never" as the largest integer of SQLite.
pub(crate) fn has_expired(expires: UnixTime, now: UnixTime) -> bool {
    expires != UnixTime::NEVER && expires <= now
}

pub(crate) fn optional_time(row: &Row, column: &str) -> rusqlite::Result<Option<UnixTime>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(to_time))
}

pub(crate) fn optional_identity(row: &Row, column: &str) -> rusqlite::Result<Option<Identity>> {
    Ok(row.get::<_, Option<_>>(column)?.map(Identity::from_bytes))
}

pub(crate) fn session_id(row: &Row, column: &str) -> rusqlite::Result<SessionId> {
    row.get(column).map(SessionId::from_bytes)
}

pub(crate) fn link_id(row: &Row, column: &str) -> rusqlite::Result<LinkId> {
    row.get(column).map(LinkId::from_bytes)
}

/// A column that holds the text form of `T`.
pub(crate) fn parsed<T>(row: &Row, column: &str) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let index = row.as_ref().column_index(column)?;
    row.get::<_, String>(index)?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}
