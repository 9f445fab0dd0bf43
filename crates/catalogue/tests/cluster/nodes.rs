//! Several nodes of one catalogue, and an engine that goes away.

use std::path::Path;
use std::thread;
use std::time::Duration;

use levada_catalogue::model::Draft;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{NOW, content, draft, draft_with, publish};
use levada_catalogue::store::{Change, Outcome, Store, StoreError};
use levada_core::{Clock, SystemClock};

use super::engine::{Engine, until};
use crate::http::server::{Server, lenient_config};

fn node(folder: &Path, number: usize, options: &Options) -> ClusterStore {
    ClusterStore::open(&folder.join(number.to_string()), options).unwrap()
}

fn changes(store: &dyn Store) -> Vec<Change> {
    store.changes(0, 1000).unwrap()
}

#[test]
fn nodes_see_the_same_changes_in_the_same_order() {
    let engine = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let options = engine.options("shared");
    let [a, b] = [0, 1].map(|number| node(folder.path(), number, &options));
    let first = draft_with(&a, "hyperty/a", "1.0.0", b"code");
    publish(&a, &first);
    until("b sees what a has published", || b.get(&first.key, &first.version).unwrap().is_some());
    assert_eq!(content(&b, &first.package.as_ref().unwrap().digest).unwrap(), b"code");
    assert_eq!(b.publish(&first, None, NOW).unwrap(), Outcome::Same);
    let other = Draft { descriptor: b"{ }".to_vec(), ..first.clone() };
    assert_eq!(b.publish(&other, None, NOW).unwrap(), Outcome::Conflict);
    assert!(matches!(b.yank(&first.key, &first.version, true, None, NOW), Ok(Outcome::Created(_))));
    thread::scope(|scope| {
        for (store, name) in [(&a, "a"), (&b, "b")] {
            scope.spawn(move || {
                for n in 0..20 {
                    publish(store, &draft(&format!("hyperty/{name}{n}"), "1.0.0", "{}"));
                }
            });
        }
    });
    // A new node has all of it at once, and so has one that was away.
    drop(b);
    publish(&a, &draft("hyperty/late", "1.0.0", "{}"));
    let [b, c] = [1, 2].map(|number| node(folder.path(), number, &options));
    until("b catches up", || b.revision().unwrap() == a.revision().unwrap());
    assert_eq!(changes(&a).len(), 43);
    assert_eq!(changes(&a), changes(&b));
    assert_eq!(changes(&a), changes(&c));
    // What another node may have shown is not denied.
    let newest = a.revision().unwrap();
    let behind = a.changes(newest + 5, 1);
    assert!(matches!(behind, Err(StoreError::Behind { after, .. }) if after == newest + 5));
    let log = |store: &ClusterStore| store.audit(100, None).unwrap();
    assert_eq!(log(&a).len(), 44);
    assert_eq!(log(&a), log(&b));
    assert_eq!(log(&a), log(&c));
    // None of them deletes what a version refers to, and all forget what is deleted.
    let unused = draft_with(&c, "hyperty/never", "1.0.0", b"unused").package.unwrap().digest;
    until("a knows it", || a.has_blob(&unused).unwrap());
    let later = SystemClock.now().after(Duration::from_secs(3600));
    let mut collected = 0;
    until("a deletes it", || {
        collected += a.collect(Duration::ZERO, None, later).unwrap().blobs;
        collected == 1
    });
    until("c forgets it", || !c.has_blob(&unused).unwrap());
    assert_eq!(content(&c, &unused), None);
    assert_eq!(content(&c, &first.package.unwrap().digest).unwrap(), b"code");
    for store in [&a, &b, &c] {
        let mut findings = Vec::new();
        store.verify(&mut |finding| findings.push(finding)).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
    }
}

/// What an answer of a node says about how far it is behind.
fn behind(server: &Server<ClusterStore>, path: &str) -> Option<String> {
    server.get(path).field("levada-catalogue-behind").map(str::to_owned)
}

#[test]
fn reading_goes_on_while_the_engine_is_away() {
    let mut engine = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let patient = engine.options("away");
    let store = node(folder.path(), 0, &patient);
    let one = draft_with(&store, "hyperty/a", "1.0.0", b"code");
    publish(&store, &one);
    drop(store);
    let Options { write_timeout, .. } = Options::default();
    let options = Options { write_timeout, ..patient };
    let store = node(folder.path(), 0, &options);
    until("the node follows", || store.lag().unwrap().fault.is_none());
    let port = "127.0.0.1:0";
    let server = Server::over(
        store.clone(),
        tempfile::tempdir().unwrap(),
        port,
        lenient_config(),
        Default::default(),
    );
    until("its answers say nothing", || behind(&server, "/v1/objects/hyperty/a").is_none());
    (0..3).for_each(|number| engine.kill(number));
    let two = draft("hyperty/b", "1.0.0", "{}");
    until("publishing fails", || match store.publish(&two, None, NOW) {
        Err(StoreError::Unavailable(_)) => true,
        Err(StoreError::Uncertain) => false,
        other => panic!("{other:?}"),
    });
    until("the node says so", || store.lag().unwrap().fault.is_some());
    until("its answers say so", || behind(&server, "/v1/objects/hyperty/b").is_some());
    assert!(behind(&server, "/v1/objects/hyperty/a").unwrap().starts_with("seconds="));
    assert_eq!(behind(&server, "/v1/objects/hyperty/a/1.0.0"), None, "it never changes");
    drop(server);
    assert_eq!(store.get(&one.key, &one.version).unwrap().unwrap().descriptor, one.descriptor);
    assert_eq!(content(&store, &one.package.as_ref().unwrap().digest).unwrap(), b"code");
    // A node starts without the engine, too.
    drop(store);
    let store = node(folder.path(), 0, &options);
    assert_eq!(store.versions(&one.key).unwrap().len(), 1);
    (0..3).for_each(|number| engine.start_one(number));
    until("publishing goes on", || match store.publish(&two, None, NOW) {
        Ok(Outcome::Created(_) | Outcome::Same) => true,
        Err(StoreError::Unavailable(_) | StoreError::Uncertain) => false,
        other => panic!("{other:?}"),
    });
    until("the node follows again", || store.lag().unwrap().fault.is_none());
    assert_eq!(changes(&store).len(), 2);
}
