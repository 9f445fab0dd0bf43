//! Converts between the columns of the database and the types of the model.

use std::str::FromStr;

use levada_core::{Digest, Identity, UnixTime};
use rusqlite::Row;
use rusqlite::types::Type;

use crate::model::{DescriptorSignature, Key, Package, Published};

/// The length of an identity with its signature, in bytes.
const SIGNATURE: usize = 32 + 64;

/// SQLite has no unsigned integers; no number of the store exceeds `i64::MAX`.
pub(super) fn from_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn number(row: &Row, column: &str) -> rusqlite::Result<u64> {
    Ok(to_number(row.get(column)?))
}

pub(super) fn to_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Times that do not fit become "never".
pub(super) fn from_time(time: UnixTime) -> i64 {
    from_number(time.0)
}

pub(super) fn time(row: &Row, column: &str) -> rusqlite::Result<UnixTime> {
    let seconds: i64 = row.get(column)?;
    Ok(if seconds == i64::MAX { UnixTime::NEVER } else { UnixTime(to_number(seconds)) })
}

pub(super) fn identity(row: &Row, column: &str) -> rusqlite::Result<Option<Identity>> {
    Ok(row.get::<_, Option<_>>(column)?.map(Identity::from_bytes))
}

/// Parses a column with the text form of `T`.
pub(super) fn parsed<T>(row: &Row, column: &str) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let index = row.as_ref().column_index(column)?;
    parse(index, &row.get::<_, String>(index)?)
}

/// As [`parsed`] for a column that may be NULL.
pub(super) fn optional<T>(row: &Row, column: &str) -> rusqlite::Result<Option<T>>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let index = row.as_ref().column_index(column)?;
    row.get::<_, Option<String>>(index)?.map(|text| parse(index, &text)).transpose()
}

fn parse<T>(index: usize, text: &str) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

/// The columns `kind` and `name`.
pub(super) fn key(row: &Row) -> rusqlite::Result<Key> {
    Ok(Key { kind: parsed(row, "kind")?, name: parsed(row, "name")? })
}

/// A row of [`read::VERSIONS`](super::read::VERSIONS).
pub(super) fn published(row: &Row) -> rusqlite::Result<Published> {
    Ok(Published {
        key: key(row)?,
        version: parsed(row, "version")?,
        descriptor: row.get("descriptor")?,
        digest: row.get("digest")?,
        package: package(row)?,
        signatures: signatures(&row.get::<_, Vec<u8>>("signatures")?),
        publisher: identity(row, "publisher")?,
        published: time(row, "published")?,
        yanked: row.get("yanked")?,
        revision: number(row, "revision")?,
    })
}

fn package(row: &Row) -> rusqlite::Result<Option<Package>> {
    let Some(digest) = row.get("package")? else {
        return Ok(None);
    };
    Ok(Some(Package {
        digest,
        length: number(row, "package_length")?,
        media_type: row.get("package_type")?,
        description: row.get("package_description")?,
    }))
}

/// The schema checks that the length is a multiple of [`SIGNATURE`].
fn signatures(bytes: &[u8]) -> Vec<DescriptorSignature> {
    let one = |bytes: &[u8]| {
        let (identity, signature) = bytes.split_at(32);
        let identity = Identity::try_from(identity).ok()?;
        Some(DescriptorSignature { identity, signature: signature.try_into().ok()? })
    };
    bytes.chunks_exact(SIGNATURE).filter_map(one).collect()
}

/// The parts of a package that are compared.
pub(super) fn package_parts(package: Option<&Package>) -> Option<(&Digest, u64, &str, &[u8])> {
    package.map(|it| (&it.digest, it.length, it.media_type.as_str(), it.description.as_slice()))
}
