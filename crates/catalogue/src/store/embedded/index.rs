//! The full-text index of a replica. It follows behind the records, in transactions of its own: one
//! for many records costs far less than a part in each of theirs. A search brings it up to date
//! first.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::inner::Inner;
use super::{row, search, words};
use crate::model::Key;
use crate::store::StoreError;

/// How many changes are indexed at once, at most: others wait for the connection meanwhile.
const CHANGES: u32 = 256;
/// And how many bytes of descriptors, about.
const BYTES: usize = 1 << 20;

/// Objects that have changed.
#[derive(Default)]
struct Changed {
    /// The revision of the last of these changes; `None` if there are no changes.
    last: Option<u64>,
    objects: Vec<Object>,
}

struct Object {
    id: i64,
    /// None if the object shows no version.
    words: Option<String>,
}

impl Inner {
    /// Indexes the next changes of a replica. Whether there were any.
    pub fn index_next(&self) -> Result<bool, StoreError> {
        let _alone = self.indexing.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.database.read(changed)?;
        if changed.last.is_none() {
            return Ok(false);
        }
        self.database.write::<_, StoreError>(|tx| Ok(write(tx, &changed)?))?;
        Ok(true)
    }

    /// Indexes what was changed in a replica before the call. Fails if that takes longer than
    /// `limit`.
    pub fn index_within(&self, limit: Duration) -> Result<(), StoreError> {
        let revision = self.revision()?;
        let start = Instant::now();
        loop {
            let indexed = self.database.read(indexed)?;
            if indexed >= revision {
                return Ok(());
            }
            if start.elapsed() > limit {
                return Err(StoreError::Behind { after: revision, newest: indexed });
            }
            self.index_next()?;
        }
    }
}

/// Indexes all that was changed in a replica.
pub(super) fn update(connection: &Connection) -> rusqlite::Result<()> {
    loop {
        let changed = changed(connection)?;
        if changed.last.is_none() {
            return Ok(());
        }
        write(connection, &changed)?;
    }
}

/// Up to which revision a replica is indexed; 0 for one that follows no log yet.
fn indexed(connection: &Connection) -> rusqlite::Result<u64> {
    let mut query = connection.prepare_cached("SELECT indexed FROM replica")?;
    let found = query.query_row([], |row| row::number(row, "indexed")).optional()?;
    Ok(found.unwrap_or_default())
}

/// The next changes behind those that are indexed. An object has the words of the version that it
/// shows now, which may be that of a later change: it is indexed again then.
fn changed(connection: &Connection) -> rusqlite::Result<Changed> {
    let mut query = connection.prepare_cached(
        "SELECT changed.revision AS revision, object.id AS id, kind, name, shown.descriptor AS descriptor
         FROM version AS changed JOIN object ON object.id = changed.object
         LEFT JOIN version AS shown ON shown.id = object.shown
         WHERE changed.revision > ?1 ORDER BY changed.revision LIMIT ?2",
    )?;
    let mut rows = query.query((row::from_number(indexed(connection)?), CHANGES))?;
    let mut found = Changed::default();
    let mut bytes = 0;
    while let Some(row) = rows.next()?.filter(|_| bytes < BYTES) {
        let key: Key = row::key(row)?;
        let descriptor: Option<Vec<u8>> = row.get("descriptor")?;
        bytes += descriptor.as_ref().map_or(0, Vec::len);
        let words = descriptor.map(|descriptor| words::of_version(&key, &descriptor));
        found.last = Some(row::number(row, "revision")?);
        found.objects.push(Object { id: row.get("id")?, words });
    }
    Ok(found)
}

fn write(connection: &Connection, changed: &Changed) -> rusqlite::Result<()> {
    for Object { id, words } in &changed.objects {
        search::set_words(connection, *id, words.as_deref())?;
    }
    let Some(last) = changed.last else { return Ok(()) };
    connection
        .prepare_cached("UPDATE replica SET indexed = ?1")?
        .execute([row::from_number(last)])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use levada_core::UnixTime;
    use levada_database::Kind as DatabaseKind;

    use super::super::Options;
    use super::super::replica::{Author, DATABASE, Entry, REPLICA, Record};
    use super::*;
    use crate::store::conformance::draft;

    const AUTHOR: Author = Author { identity: None, time: UnixTime(7) };
    /// As it was before words were indexed later.
    const OLD: DatabaseKind =
        DatabaseKind { migrations: REPLICA.migrations.split_at(3).0, ..REPLICA };

    fn open(folder: &Path, kind: &'static DatabaseKind) -> Inner {
        Inner::open(folder, DATABASE, kind, Options::default()).unwrap()
    }

    fn new(folder: &Path, kind: &'static DatabaseKind) -> Inner {
        let inner = open(folder, kind);
        inner.follow(&[1; 16]).unwrap();
        inner
    }

    fn apply(inner: &Inner, number: u64, record: Record) {
        inner
            .apply(&[Entry { number, time: UnixTime(7), digest: [0; 32], record: Some(record) }])
            .unwrap();
    }

    fn publish(inner: &Inner, number: u64, key: &str, version: &str, text: &str) {
        let draft = draft(key, version, &format!("{{\"text\":{text:?}}}"));
        apply(inner, number, Record::Published(draft, AUTHOR));
    }

    fn yank(inner: &Inner, number: u64, key: &str, version: &str, yanked: bool) {
        let key = key.parse().unwrap();
        let version = version.parse().unwrap();
        apply(inner, number, Record::Yanked { key, version, yanked, author: AUTHOR });
    }

    /// What is found as the index is.
    fn found(inner: &Inner, query: &str) -> Vec<String> {
        let hits = inner.search(query, None, None, 100).unwrap();
        hits.iter().map(|hit| format!("{} {}", hit.key, hit.version)).collect()
    }

    fn index(inner: &Inner) {
        inner.index_within(Duration::MAX).unwrap();
    }

    #[test]
    fn words_follow_behind_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let inner = new(folder.path(), &REPLICA);
        publish(&inner, 1, "hyperty/a", "1.0.0", "early");
        publish(&inner, 2, "hyperty/a", "2.0.0", "late");
        publish(&inner, 4, "hyperty/b", "1.0.0", "early");
        assert!(found(&inner, "early").is_empty());
        assert!(matches!(
            inner.index_within(Duration::ZERO),
            Err(StoreError::Behind { after: 4, newest: 0 })
        ));
        index(&inner);
        assert_eq!(found(&inner, "early"), ["hyperty/b 1.0.0"]);
        assert_eq!(found(&inner, "late"), ["hyperty/a 2.0.0"]);
        assert!(!inner.index_next().unwrap());

        yank(&inner, 5, "hyperty/a", "2.0.0", true);
        yank(&inner, 6, "hyperty/b", "1.0.0", true);
        drop(inner);
        // What was not indexed is so after the next start.
        let inner = open(folder.path(), &REPLICA);
        index(&inner);
        assert_eq!(found(&inner, "early"), ["hyperty/a 1.0.0"]);
        yank(&inner, 7, "hyperty/a", "2.0.0", false);
        index(&inner);
        assert_eq!(found(&inner, "late"), ["hyperty/a 2.0.0"]);
    }

    #[test]
    fn many_changes_are_indexed_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let inner = new(folder.path(), &REPLICA);
        let count = u64::from(2 * CHANGES + 1);
        (1..=count).for_each(|n| publish(&inner, n, &format!("hyperty/h{n}"), "1.0.0", "word"));
        let mut parts = 0;
        while inner.index_next().unwrap() {
            parts += 1;
        }
        assert_eq!(parts, 3);
        assert!(inner.search(&format!("h{count}"), None, None, 1).unwrap().len() == 1);
    }

    #[test]
    fn an_older_replica_is_indexed_already() {
        let folder = tempfile::tempdir().unwrap();
        let inner = new(folder.path(), &OLD);
        publish(&inner, 3, "hyperty/a", "1.0.0", "text");
        drop(inner);
        let inner = open(folder.path(), &REPLICA);
        assert!(!inner.index_next().unwrap());
        publish(&inner, 4, "hyperty/b", "1.0.0", "text");
        index(&inner);
        assert_eq!(found(&inner, "text"), ["hyperty/b 1.0.0"]);
    }

    #[test]
    fn verification_and_backups_have_all_words() {
        let folder = tempfile::tempdir().unwrap();
        let inner = new(folder.path(), &REPLICA);
        publish(&inner, 1, "hyperty/a", "1.0.0", "text");
        let backup = tempfile::tempdir().unwrap();
        inner.back_up(backup.path()).unwrap();
        let copy = open_catalogue(backup.path());
        assert_eq!(found(&copy, "text"), ["hyperty/a 1.0.0"]);
        assert!(found(&inner, "text").is_empty());
        assert_eq!(inner.verify(&mut |finding| panic!("{finding:?}")).unwrap().versions, 1);
        assert_eq!(found(&inner, "text"), ["hyperty/a 1.0.0"]);
    }

    fn open_catalogue(folder: &Path) -> Inner {
        use super::super::inner::{CATALOGUE, DATABASE};
        Inner::open(folder, DATABASE, &CATALOGUE, Options::default()).unwrap()
    }
}
