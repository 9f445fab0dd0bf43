use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

const KIND: Kind = Kind {
    application_id: 0x4c76_7474,
    migrations: &["CREATE TABLE a (x INTEGER) STRICT"],
    exclusive: true,
    busy_timeout: Duration::ZERO,
    shrinks: true,
};

fn test_path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below").join("test.db");
    (folder, path)
}

fn add(database: &Database, x: i64) -> Result<(), DatabaseError> {
    database.write(|tx| {
        tx.execute("INSERT INTO a VALUES (?1)", [x])?;
        Ok(())
    })
}

fn count(database: &Database) -> i64 {
    database.read(|c| c.query_row("SELECT count(*) FROM a", [], |row| row.get(0))).unwrap()
}

#[test]
fn writes_persist_in_a_private_file_that_one_process_opens() {
    let (_folder, path) = test_path();
    let database = Database::open(&path, &KIND).unwrap();
    add(&database, 1).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(matches!(Database::open(&path, &KIND), Err(DatabaseError::InUse { .. })));
    drop(database);
    assert_eq!(count(&Database::open(&path, &KIND).unwrap()), 1);
}

#[test]
fn a_refusal_rolls_the_transaction_back() {
    let (_folder, path) = test_path();
    let database = Database::open(&path, &KIND).unwrap();
    let refused = database.write(|tx| {
        tx.execute("INSERT INTO a VALUES (1)", [])?;
        Err::<(), _>(Fault::Refused(DatabaseError::InUse { path: path.clone() }))
    });
    assert!(matches!(refused, Err(DatabaseError::InUse { .. })));
    assert_eq!(count(&database), 0);
}

#[test]
fn a_copy_in_memory_follows_the_commits() {
    let (_folder, path) = test_path();
    let database = Database::open(&path, &KIND).unwrap();
    let mut copy = 0;
    let insert = |tx: &rusqlite::Transaction| {
        tx.execute("INSERT INTO a VALUES (1)", [])?;
        tx.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).map_err(Fault::Sql)
    };
    database.write_then::<i64, _, DatabaseError>(insert, |count| copy = count).unwrap();
    assert_eq!((copy, count(&database)), (1, 1));
    let refused = database.write_then(
        |tx| {
            insert(tx)?;
            Err::<(), _>(Fault::Refused(DatabaseError::InUse { path: path.clone() }))
        },
        |()| copy = 2,
    );
    assert!(refused.is_err());
    assert_eq!((copy, count(&database)), (1, 1));
}

#[test]
fn a_newer_schema_is_refused_and_not_changed() {
    const NEWER: Kind = Kind { migrations: &["CREATE TABLE a (x INTEGER) STRICT", ""], ..KIND };
    let (_folder, path) = test_path();
    drop(Database::open(&path, &NEWER).unwrap());
    let before = fs::read(&path).unwrap();
    let error = Database::open(&path, &KIND).err().unwrap();
    assert!(matches!(error, DatabaseError::Newer { found: 2, known: 1, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn another_kind_of_database_is_foreign() {
    const OTHER: Kind = Kind { application_id: 1, ..KIND };
    let (_folder, path) = test_path();
    drop(Database::open(&path, &OTHER).unwrap());
    let error = Database::open(&path, &KIND).err().unwrap();
    assert!(matches!(error, DatabaseError::Foreign { .. }), "{error}");
}

#[test]
fn a_full_disk_has_its_own_error_and_loses_nothing() {
    let (_folder, path) = test_path();
    let database = Database::open(&path, &KIND).unwrap();
    add(&database, 1).unwrap();
    let pages = |c: &rusqlite::Connection| {
        let used: i64 = c.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        c.query_row(&format!("PRAGMA max_page_count = {used}"), [], |_| Ok(()))
    };
    database.read(pages).unwrap();
    let full = database.write::<_, DatabaseError>(|tx| {
        (0..10_000).try_for_each(|x| tx.execute("INSERT INTO a VALUES (?1)", [x]).map(drop))?;
        Ok(())
    });
    let error = full.unwrap_err();
    assert!(matches!(error, DatabaseError::Full { .. }), "{error}");
    assert!(error.to_string().contains("test.db: no space left"), "{error}");
    assert_eq!(count(&database), 1);
    add(&database, 2).unwrap();
    database.integrity_check().unwrap();
}

/// The names and contents of the files next to `path`.
fn listing(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let files = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
    let mut all: Vec<_> =
        files.map(|file| (file.file_name(), fs::read(file.path()).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn an_examination_changes_nothing() {
    let (_folder, path) = test_path();
    let log = path.with_extension("db-wal");
    let database = Database::open(&path, &KIND).unwrap();
    add(&database, 1).unwrap();
    // As a killed process leaves them.
    let killed = [fs::read(&path).unwrap(), fs::read(&log).unwrap()];
    drop(database);
    for with_log in [false, true] {
        if with_log {
            fs::write(&path, &killed[0]).unwrap();
            fs::write(&log, &killed[1]).unwrap();
        }
        let before = listing(&path);
        assert_eq!(before.len(), if with_log { 2 } else { 1 });
        let shared = Kind { exclusive: false, ..KIND };
        for kind in [&KIND, &shared] {
            let (database, is_newest) = Database::examine(&path, kind).unwrap();
            assert!(is_newest);
            assert_eq!(count(&database), 1);
            database.integrity_check().unwrap();
            drop(database);
            assert_eq!(listing(&path), before, "with a log: {with_log}");
        }
        const LATER: &[&str] = &[KIND.migrations[0], "CREATE TABLE b (x INTEGER) STRICT"];
        let later = Kind { migrations: LATER, ..KIND };
        assert!(!Database::examine(&path, &later).unwrap().1);
        assert_eq!(listing(&path), before);
    }
    // The log counts: without it, the row is missing.
    assert_eq!(count(&Database::open(&path, &KIND).unwrap()), 1);
}

#[test]
fn an_examination_finds_what_prevents_an_opening() {
    let (folder, path) = test_path();
    drop(Database::open(&path, &KIND).unwrap());
    let newer = Kind { migrations: &[], ..KIND };
    assert!(matches!(Database::examine(&path, &newer), Err(DatabaseError::Newer { .. })));
    let other = Kind { application_id: 1, ..KIND };
    assert!(matches!(Database::examine(&path, &other), Err(DatabaseError::Foreign { .. })));
    let odd = folder.path().join("a?b#c%d.db");
    for (content, is_foreign) in [(vec![7; 8192], true), (Vec::new(), false)] {
        fs::write(&odd, content).unwrap();
        let found = Database::examine(&odd, &KIND);
        assert_eq!(matches!(found, Err(DatabaseError::Foreign { .. })), is_foreign);
        assert_eq!(found.is_ok(), !is_foreign);
    }
    let found = Database::examine(folder.path(), &KIND).map(drop).unwrap_err();
    assert!(found.to_string().ends_with("not a regular file"), "{found}");
    let missing = Database::examine(&folder.path().join("none"), &KIND).map(drop);
    assert!(matches!(missing, Err(DatabaseError::File { .. })));
}

/// The length of the file after a checkpoint, in bytes.
fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn fill_and_empty(database: &Database) {
    let fill = |tx: &rusqlite::Transaction| {
        (0..20_000).try_for_each(|x| tx.execute("INSERT INTO a VALUES (?1)", [x]).map(drop))?;
        Ok(())
    };
    database.write::<_, DatabaseError>(fill).unwrap();
    let empty = |tx: &rusqlite::Transaction| {
        tx.execute("DELETE FROM a", [])?;
        Ok(())
    };
    database.write::<_, DatabaseError>(empty).unwrap();
}

#[test]
fn a_file_shrinks_in_bounded_steps() {
    let (_folder, path) = test_path();
    drop(Database::open(&path, &KIND).unwrap());
    let new = length(&path);
    let database = Database::open(&path, &KIND).unwrap();
    fill_and_empty(&database);
    let mut steps = 1;
    while database.release_pages(8).unwrap() {
        steps += 1;
    }
    assert!(steps > 3, "{steps}");
    assert_eq!(length(&path), new);
    assert!(!database.release_pages(8).unwrap());
    database.integrity_check().unwrap();
}

#[test]
fn a_file_of_an_earlier_version_shrinks_too() {
    const OLD: Kind = Kind { shrinks: false, ..KIND };
    let (_folder, path) = test_path();
    let database = Database::open(&path, &OLD).unwrap();
    add(&database, 1).unwrap();
    fill_and_empty(&database);
    add(&database, 1).unwrap();
    assert!(!database.release_pages(u32::MAX).unwrap());
    drop(database);
    let old = length(&path);
    let database = Database::open(&path, &KIND).unwrap();
    assert_eq!(count(&database), 1);
    assert!(length(&path) < old / 4, "{old}");
    fill_and_empty(&database);
    while database.release_pages(8).unwrap() {}
    assert!(length(&path) < old / 4, "{old}");
}
