//! The database file: access, copies, and errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use levada_node::store::{SessionFilter, Store, StoreError};

use super::{Home, create};
use crate::support::id;

#[test]
fn files_and_folder_are_private() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = home.path();
    let folder = folder.parent().unwrap();
    assert_eq!(mode(folder), 0o700);
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(store);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(home.open());
    assert_eq!(mode(&home.path()), 0o600);
}

#[test]
fn a_second_process_cannot_open_the_file() {
    let home = Home::new();
    let _store = home.open();
    let error = Store::open(&home.path()).err().unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
}

#[test]
fn a_snapshot_is_a_complete_private_database() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let copy = home.0.path().join("copy.db");
    store.snapshot(&copy).unwrap();
    let error = store.snapshot(&copy).unwrap_err().to_string();
    assert!(error.contains("copy.db"), "{error}");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = Store::open(&copy).unwrap();
    copy.integrity_check().unwrap();
    assert_eq!(*copy.session(&id(1)).unwrap().unwrap().root, [1; 32]);
}

#[test]
fn every_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.db");
    let error = |path: &Path| {
        let error = Store::open(path).err().unwrap();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        error
    };
    for junk in [&b"hello, I am a text"[..], &[0x5a; 8192]] {
        fs::write(&path, junk).unwrap();
        assert!(matches!(error(&path), StoreError::Foreign { .. }));
        assert_eq!(fs::read(&path).unwrap(), junk, "a foreign file stays as it is");
    }
    fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE album (title TEXT)").unwrap();
    drop(other);
    assert!(matches!(error(&path), StoreError::Foreign { .. }));
    assert!(matches!(error(folder.path()), StoreError::File { .. }));
    assert!(matches!(error(&path.join("node.db")), StoreError::File { .. }));
}

#[test]
fn a_newer_database_is_refused_and_not_changed() {
    let home = Home::new();
    drop(home.open());
    let raw = rusqlite::Connection::open(home.path()).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let before = fs::read(home.path()).unwrap();
    let error = Store::open(&home.path()).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 8, .. }), "{error}");
    assert_eq!(fs::read(home.path()).unwrap(), before);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let home = Home::new();
    let store = home.open();
    (1..=60).for_each(|byte| create(&store, byte));
    store.integrity_check().unwrap();
    drop(store);
    let whole = fs::read(home.path()).unwrap();
    let mut found = 0;
    for page in 0..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(home.path(), bytes).unwrap();
        let outcome = Store::open(&home.path()).and_then(|store| {
            store.sessions(&SessionFilter::default())?;
            store.integrity_check()
        });
        if let Err(error) = outcome {
            let kind = matches!(error, StoreError::Damaged { .. } | StoreError::Foreign { .. });
            assert!(kind && error.to_string().contains("node.db"), "{error}");
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}
