//! This version reads the databases that each released version wrote.
//!
//! A fixture is the schema and the rows of such a database and is never changed. Each new schema
//! version adds one.

use std::fs;
use std::path::Path;

use levada_catalogue::model::{Key, Version};
use levada_catalogue::store::embedded::{DATABASE, EmbeddedStore};
use levada_catalogue::store::{Action, Event, Outcome, Store, StoreError};
use levada_core::{Identity, UnixTime, sha256};
use rusqlite::Connection;
use tempfile::TempDir;

const CATALOGUE_1: &str = include_str!("../fixtures/catalogue-v1.db.sql");
const CATALOGUE_2: &str = include_str!("../fixtures/catalogue-v2.db.sql");
/// The time at which the fixture was made.
const THEN: UnixTime = UnixTime(1_700_000_000);

/// A folder with the database of a fixture and its one blob.
fn restore(sql: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Connection::open(folder.path().join(DATABASE)).unwrap().execute_batch(sql).unwrap();
    let name: String = sha256(&[b"code"]).iter().map(|byte| format!("{byte:02x}")).collect();
    let blobs = folder.path().join("blobs").join(&name[..2]);
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(&name[2..]), "code").unwrap();
    folder
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn reads_versions_of_schema_1() {
    let folder = restore(CATALOGUE_1);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let mut findings = Vec::new();
    store.verify(&mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let alice = key("hyperty/AliceChat");
    let versions = store.versions(&alice).unwrap();
    let [old, new] = &versions[..] else { panic!("{versions:?}") };
    assert_eq!((&old.version, old.revision), (&version("1.0.0"), 6));
    assert_eq!((&new.version, new.revision), (&version("1.1.0-rc.1"), 2));
    let new = store.get(&alice, &new.version).unwrap().unwrap();
    assert_eq!(new.descriptor, br#"{"word":"new","n":1.10}"#);
    assert_eq!((new.publisher, new.published.0), (Some(Identity::from_bytes([5; 32])), THEN.0 + 1));
    let package = new.package.as_ref().unwrap();
    assert_eq!((package.digest, package.length), (sha256(&[b"code"]), 4));
    assert_eq!(
        (package.media_type.as_str(), &package.description[..]),
        ("text/javascript", &b"{}"[..])
    );
    let [signature] = &new.signatures[..] else { panic!("{:?}", new.signatures) };
    assert_eq!(signature.identity, Identity::from_bytes([1; 32]));
    assert_eq!(signature.signature, [2; 64]);
    let gone = store
        .get(&key("idp-proxy/Bob"), &version("0.0.0-original.0123456789abcdef"))
        .unwrap()
        .unwrap();
    assert!(gone.yanked && gone.published == UnixTime::NEVER && gone.publisher.is_none());
}

#[test]
fn searches_follows_and_writes_schema_1() {
    let folder = restore(CATALOGUE_1);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let found = |query: &str| {
        let hits = store.search(query, None, None, 5).unwrap();
        hits.iter().map(|hit| format!("{} {}", hit.key, hit.version)).collect::<Vec<_>>()
    };
    // The build that wrote the fixture indexed the pre-release as the newest version.
    assert_eq!(found("chat old"), ["hyperty/AliceChat 1.0.0"]);
    assert_eq!(found("alice"), ["hyperty/AliceChat 1.0.0"]);
    assert!(found("gone").is_empty() && found("new").is_empty());
    assert!(matches!(store.changes(0, 9), Err(StoreError::Compacted { kept: 1, newest: 6, .. })));
    let events: Vec<_> = store.changes(1, 9).unwrap().into_iter().map(|it| it.event).collect();
    use Event::{Published, Unyanked, Yanked};
    assert_eq!(events, [Published, Published, Yanked, Yanked, Unyanked]);
    let audit = store.audit(9, None).unwrap();
    assert_eq!((audit[0].action, audit[0].key.as_ref()), (Action::Collect, None));
    assert_eq!((audit[1].action, audit[1].outcome.as_str()), (Action::Publish, "conflict"));
    let back = store
        .yank(&key("idp-proxy/Bob"), &version("0.0.0-original.0123456789abcdef"), false, None, THEN)
        .unwrap();
    assert_eq!(back, Outcome::Created(7));
    assert_eq!(found("gone"), ["idp-proxy/Bob 0.0.0-original.0123456789abcdef"]);
}

#[test]
fn reads_the_hash_trees_of_schema_2() {
    let folder = restore(CATALOGUE_2);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    assert_eq!(store.versions(&key("hyperty/AliceChat")).unwrap().len(), 2);
    let tree = store.outboard(&sha256(&[b"code"])).unwrap().unwrap();
    assert_eq!((tree.root, tree.part, tree.hashes), ([7; 32], 65_536, vec![[8; 32], [9; 32]]));
}

/// A released schema is never changed in place: a new database has the schema of the fixture.
#[test]
fn the_newest_schema_equals_that_of_the_fixture() {
    let fresh = tempfile::tempdir().unwrap();
    let fixture = restore(CATALOGUE_2);
    drop(EmbeddedStore::open(fresh.path()).unwrap());
    assert_eq!(schema(fresh.path()), schema(fixture.path()));
}

fn schema(folder: &Path) -> Vec<String> {
    let connection = Connection::open(folder.join(DATABASE)).unwrap();
    let number = |name: &str| {
        let sql = format!("PRAGMA {name}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap().to_string()
    };
    let mut all = vec![number("application_id"), number("user_version")];
    let mut rows = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    all.extend(rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap));
    all
}
