//! Conversions between values and columns of a database.

use levada_core::{Identity, UnixTime};
use rusqlite::Row;

/// The column of a time. SQLite has no unsigned numbers: times beyond its largest number become
/// "never".
pub fn from_time(time: UnixTime) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// The time of a column that [`from_time`] wrote.
pub fn to_time(seconds: i64) -> UnixTime {
    if seconds == i64::MAX {
        return UnixTime::NEVER;
    }
    UnixTime(u64::try_from(seconds).unwrap_or(0))
}

/// The time in `column`.
///
/// # Errors
/// As for [`Row::get`].
pub fn time(row: &Row, column: &str) -> rusqlite::Result<UnixTime> {
    row.get(column).map(to_time)
}

/// The identity in `column`.
///
/// # Errors
/// As for [`Row::get`].
pub fn identity(row: &Row, column: &str) -> rusqlite::Result<Identity> {
    row.get(column).map(Identity::from_bytes)
}
