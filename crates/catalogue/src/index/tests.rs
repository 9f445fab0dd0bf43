use bytes::Bytes;
use levada_core::UnixTime;

use super::*;
use crate::model::{Draft, Package};
use crate::rethink::{Answer, Host};
use crate::store::embedded::{EmbeddedStore, Options as StoreOptions};
use crate::store::{Event, Store, StoreError};

const NOW: UnixTime = UnixTime(1_700_000_000);

fn draft(key: &str, version: &str, descriptor: &str) -> Draft {
    Draft {
        key: key.parse().unwrap(),
        version: version.parse().unwrap(),
        descriptor: descriptor.into(),
        package: None,
        signatures: Vec::new(),
    }
}

fn store(kept_changes: u64) -> (tempfile::TempDir, EmbeddedStore) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { kept_changes, ..StoreOptions::default() };
    let store = EmbeddedStore::open_with(&folder.path().join("catalogue"), options).unwrap();
    (folder, store)
}

fn newest(index: &Index, key: &str) -> Option<(String, Bytes)> {
    let object = index.object(&key.parse().unwrap())?;
    object.newest().map(|(entry, descriptor)| (entry.version.to_string(), descriptor.clone()))
}

#[test]
fn an_index_loads_a_store_and_follows_it() {
    let (_folder, store) = store(1000);
    store.publish(&draft("service/a", "1.0.0", r#"{"v":1}"#), None, NOW).unwrap();
    let index = Index::load(&store, Options::default()).unwrap();
    assert_eq!(newest(&index, "service/a"), Some(("1.0.0".to_owned(), r#"{"v":1}"#.into())));

    let mut follower = index.revision();
    follower.borrow_and_update();
    store.publish(&draft("service/a", "1.10.0", r#"{"v":110}"#), None, NOW).unwrap();
    store.publish(&draft("service/a", "1.9.0", r#"{"v":109}"#), None, NOW).unwrap();
    store.publish(&draft("service/b", "0.1.0", "{}"), None, NOW).unwrap();
    assert_eq!(newest(&index, "service/b"), None);
    assert_eq!(index.catch_up(&store).unwrap(), 4);
    assert!(follower.has_changed().unwrap());
    assert_eq!(newest(&index, "service/a"), Some(("1.10.0".to_owned(), r#"{"v":110}"#.into())));
    assert!(newest(&index, "service/b").is_some());
    assert_eq!(index.count().iter().map(|(_, count)| count).sum::<usize>(), 2);
}

#[test]
fn a_yanked_version_is_kept_and_not_the_newest() {
    let (_folder, store) = store(1000);
    for (version, text) in [("1.0.0", r#"{"v":1}"#), ("2.0.0", r#"{"v":2}"#)] {
        store.publish(&draft("service/a", version, text), None, NOW).unwrap();
    }
    let key = "service/a".parse().unwrap();
    let two = "2.0.0".parse().unwrap();
    let index = Index::load(&store, Options::default()).unwrap();
    store.yank(&key, &two, true, None, NOW).unwrap();
    index.catch_up(&store).unwrap();
    let object = index.object(&key).unwrap();
    assert_eq!(newest(&index, "service/a"), Some(("1.0.0".to_owned(), r#"{"v":1}"#.into())));
    assert!(object.version(&two).unwrap().yanked);
    assert!(object.matching(&">=2".parse().unwrap()).is_none());
    assert_eq!(object.matching(&"*".parse().unwrap()).unwrap().version.to_string(), "1.0.0");

    store.yank(&key, &"1.0.0".parse().unwrap(), true, None, NOW).unwrap();
    index.catch_up(&store).unwrap();
    assert_eq!(newest(&index, "service/a"), None);
    assert_eq!(index.object(&key).unwrap().versions.len(), 2);
}

#[test]
fn hides_objects_that_are_not_open() {
    let (_folder, store) = store(1000);
    for key in ["service/public-a", "service/secret"] {
        store.publish(&draft(key, "1.0.0", "{}"), None, NOW).unwrap();
    }
    let open = Open::only(vec!["service/public-*".parse().unwrap()]);
    let index = Index::load(&store, Options { open, ..Options::default() }).unwrap();
    store.publish(&draft("service/secret2", "1.0.0", "{}"), None, NOW).unwrap();
    index.catch_up(&store).unwrap();
    assert!(newest(&index, "service/public-a").is_some());
    assert!(
        newest(&index, "service/secret").is_none() && newest(&index, "service/secret2").is_none()
    );
    assert_eq!(index.recent(2, 10), Some((Vec::new(), 3)));
}

#[test]
fn returns_recent_changes_from_memory_only() {
    let (_folder, store) = store(1000);
    store.publish(&draft("service/a", "1.0.0", "{}"), None, NOW).unwrap();
    let index = Index::load(&store, Options::default()).unwrap();
    for minor in 1..=5 {
        store.publish(&draft("service/a", &format!("1.{minor}.0"), "{}"), None, NOW).unwrap();
    }
    index.catch_up(&store).unwrap();
    assert!(index.recent(0, 10).is_none() && index.recent(7, 10).is_none());
    let (changes, reached) = index.recent(1, 2).unwrap();
    assert_eq!((changes.len(), reached), (2, 3));
    assert_eq!((changes[0].revision, changes[0].event), (2, Event::Published));
    let (changes, reached) = index.recent(3, 10).unwrap();
    assert_eq!((changes.len(), reached), (3, 6));
    assert_eq!(index.recent(6, 10), Some((Vec::new(), 6)));
}

#[test]
fn rebuilds_the_index_when_changes_are_compacted() {
    let (_folder, store) = store(1);
    let index = Index::load(&store, Options::default()).unwrap();
    for number in 0..20 {
        store.publish(&draft(&format!("service/s{number}"), "1.0.0", "{}"), None, NOW).unwrap();
    }
    assert!(matches!(store.changes(0, 1), Err(StoreError::Compacted { .. })));
    assert!(matches!(index.prepare(&store), Err(StoreError::Compacted { .. })));
    assert_eq!(index.catch_up(&store).unwrap(), 20);
    assert!((0..20).all(|number| newest(&index, &format!("service/s{number}")).is_some()));
}

#[test]
fn applies_a_prepared_update_once_and_in_order() {
    let (_folder, store) = store(1000);
    let index = Index::load(&store, Options::default()).unwrap();
    assert!(index.prepare(&store).unwrap().is_none());
    store.publish(&draft("service/a", "1.0.0", "{}"), None, NOW).unwrap();
    let [first, second] = [0; 2].map(|_| index.prepare(&store).unwrap().unwrap());
    assert_eq!(newest(&index, "service/a"), None);
    assert!(index.apply(first));
    assert!(newest(&index, "service/a").is_some());
    // The index is further now: the second update would revert it, or show the same change twice.
    assert!(!index.apply(second));
    assert_eq!(index.recent(0, 10).unwrap().0.len(), 1);
    store.publish(&draft("service/a", "1.1.0", "{}"), None, NOW).unwrap();
    let late = index.prepare(&store).unwrap().unwrap();
    store.publish(&draft("service/a", "1.2.0", "{}"), None, NOW).unwrap();
    index.catch_up(&store).unwrap();
    assert!(!index.apply(late));
    assert_eq!(newest(&index, "service/a").unwrap().0, "1.2.0");
    assert_eq!(*index.revision().borrow(), 3);
    assert!(index.prepare(&store).unwrap().is_none());
    // A prepared update has only some of many changes, and `apply` reports that there are more.
    for minor in 3..100 {
        store.publish(&draft("service/a", &format!("1.{minor}.0"), "{}"), None, NOW).unwrap();
    }
    assert!(!index.apply(index.prepare(&store).unwrap().unwrap()));
    assert!((4..100).contains(&*index.revision().borrow()));
}

#[test]
fn the_rethink_layer_follows() {
    let (_folder, store) = store(1000);
    let mut writer = store.begin_blob().unwrap();
    writer.write(b"code").unwrap();
    let (digest, length) = writer.finish(None).unwrap();
    let descriptor = |version: &str| {
        format!(
            r#"{{"type":"t","version":"{version}","objectName":"S","description":"d","language":"l"}}"#
        )
    };
    let package = Package {
        digest,
        length,
        media_type: "text/javascript".to_owned(),
        description: br#"{"sourceCodeClassname":"S"}"#.to_vec(),
    };
    let mut one = draft("dataschema/S", "1.0.0", &descriptor("1.0.0"));
    one.package = Some(package.clone());
    store.publish(&one, None, NOW).unwrap();
    let index = Index::load(&store, Options::default()).unwrap();
    let version = |index: &Index| match index.rethink(b"/.well-known/dataschema/S/version", None) {
        Answer::Body(body) => body.fill(Host::new(b"h").unwrap()),
        other => panic!("{other:?}"),
    };
    assert_eq!(version(&index), "1.0.0");
    assert_eq!(index.package(&digest).unwrap().0.as_ref(), "text/javascript");

    let mut two = draft("dataschema/S", "2.0.0", &descriptor("2.0.0"));
    two.package = Some(package);
    store.publish(&two, None, NOW).unwrap();
    index.catch_up(&store).unwrap();
    assert_eq!(version(&index), "2.0.0");
    for version in ["1.0.0", "2.0.0"] {
        store.yank(&two.key, &version.parse().unwrap(), true, None, NOW).unwrap();
    }
    index.catch_up(&store).unwrap();
    assert!(matches!(index.rethink(b"/.well-known/dataschema/S", None), Answer::Missing(_)));
}
