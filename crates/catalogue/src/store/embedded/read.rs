//! Reads versions and lists objects.

use rusqlite::{Connection, OptionalExtension};

use super::inner::Inner;
use super::row;
use crate::model::version::precedence;
use crate::model::{Key, Kind, Published, Version};
use crate::store::{MAX_PAGE, StoreError};

macro_rules! versions {
    ($descriptor:literal) => {
        concat!(
            "SELECT version.id AS id, kind, name, version.version AS version, ",
            $descriptor,
            " AS descriptor, version.digest AS digest, package, blob.length AS package_length,
                package_type, package_description, signatures, publisher, published, yanked,
                version.revision AS revision
             FROM version JOIN object ON object.id = version.object
             LEFT JOIN blob ON blob.digest = version.package "
        )
    };
}

/// Selects versions with all their columns; a WHERE clause may follow.
pub(super) const VERSIONS: &str = versions!("descriptor");
/// As [`VERSIONS`] without the descriptors, which may be long.
const VERSIONS_WITHOUT_DESCRIPTOR: &str = versions!("x''");

/// How many versions are read at once; each may have a megabyte.
const BATCH: u32 = 64;

impl Inner {
    pub fn get(&self, key: &Key, version: &Version) -> Result<Option<Published>, StoreError> {
        Ok(self.database.read(|connection| find(connection, key, version))?)
    }

    pub fn versions(&self, key: &Key) -> Result<Vec<Published>, StoreError> {
        let mut versions: Vec<Published> = self.database.read(|connection| {
            let sql = format!(
                "{VERSIONS_WITHOUT_DESCRIPTOR} WHERE kind = ?1 AND name = ?2 ORDER BY version.id"
            );
            let mut query = connection.prepare_cached(&sql)?;
            query.query_map((key.kind.as_str(), key.name.as_str()), row::published)?.collect()
        })?;
        // The sort is stable: versions of equal precedence stay in the order of publication.
        versions.sort_by(|a, b| precedence(&a.version, &b.version));
        Ok(versions)
    }

    pub fn each(&self, each: &mut dyn FnMut(Published)) -> Result<(), StoreError> {
        let mut after = 0_i64;
        loop {
            let batch: Vec<(i64, Published)> = self.database.read(|connection| {
                let sql = format!("{VERSIONS} WHERE version.id > ?1 ORDER BY version.id LIMIT ?2");
                let mut query = connection.prepare_cached(&sql)?;
                let numbered = query
                    .query_map((after, BATCH), |row| Ok((row.get("id")?, row::published(row)?)))?;
                numbered.collect()
            })?;
            let Some((last, _)) = batch.last() else {
                return Ok(());
            };
            after = *last;
            batch.into_iter().for_each(|(_, published)| each(published));
        }
    }

    pub fn list(
        &self,
        kind: Option<Kind>,
        prefix: &str,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<Key>, StoreError> {
        let limit = limit.min(MAX_PAGE) as usize;
        let kinds = Kind::ALL.into_iter().filter(|it| kind.is_none_or(|kind| kind == *it));
        let kinds = kinds.filter(|it| after.is_none_or(|after| after.kind <= *it));
        Ok(self.database.read(|connection| {
            let mut keys = Vec::new();
            for kind in kinds {
                let after = after.filter(|after| after.kind == kind);
                let range = Range::new(prefix, after.map(|after| after.name.as_str()));
                add_names(connection, kind, &range, limit - keys.len(), &mut keys)?;
            }
            Ok(keys)
        })?)
    }
}

pub(super) fn find(
    connection: &Connection,
    key: &Key,
    version: &Version,
) -> rusqlite::Result<Option<Published>> {
    let sql = format!("{VERSIONS} WHERE kind = ?1 AND name = ?2 AND version.version = ?3");
    connection
        .prepare_cached(&sql)?
        .query_row((key.kind.as_str(), key.name.as_str(), version.to_string()), row::published)
        .optional()
}

/// The names from `from` up to, and excluding, `below`, in byte order.
struct Range {
    from: String,
    below: String,
}

impl Range {
    fn new(prefix: &str, after: Option<&str>) -> Self {
        // A name contains no NUL, so this is the first text behind `after`.
        let behind = after.map(|after| format!("{after}\0"));
        let from = behind.filter(|behind| behind.as_str() > prefix);
        Self { from: from.unwrap_or_else(|| prefix.to_owned()), below: end_of(prefix) }
    }
}

/// A text that is greater than every name with the prefix.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // U+D800 to U+DFFF are surrogates, not characters.
        let next =
            if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            end.push(next);
            return end;
        }
    }
    // Longer than the longest name.
    "\u{10ffff}".repeat(64)
}

fn add_names(
    connection: &Connection,
    kind: Kind,
    range: &Range,
    limit: usize,
    keys: &mut Vec<Key>,
) -> rusqlite::Result<()> {
    if limit == 0 {
        return Ok(());
    }
    let mut query = connection.prepare_cached(
        "SELECT name FROM object WHERE kind = ?1 AND name >= ?2 AND name < ?3 ORDER BY name LIMIT ?4",
    )?;
    let limit = row::from_number(limit as u64);
    let names = query.query_map((kind.as_str(), &range.from, &range.below, limit), |row| {
        Ok(Key { kind, name: row::parsed(row, "name")? })
    })?;
    for key in names {
        keys.push(key?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_what_begins_with_the_prefix_and_comes_behind() {
        bolero::check!().with_type::<(String, String, String)>().for_each(
            |(prefix, after, name)| {
                let plain = |text: &str| text.chars().all(|c| c != '\0') && text.len() < 256;
                if !plain(after) || !plain(name) {
                    return;
                }
                for after in [None, Some(after.as_str())] {
                    let range = Range::new(prefix, after);
                    let inside = *name >= range.from && *name < range.below;
                    let wanted =
                        name.starts_with(prefix) && after.is_none_or(|after| name.as_str() > after);
                    assert_eq!(inside, wanted);
                }
            },
        );
    }
}
