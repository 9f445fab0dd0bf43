//! A new node begins with a snapshot of another one's replica.

use async_nats::jetstream;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{NOW, content, draft, draft_with, publish};
use levada_catalogue::store::{Outcome, Store};

use super::engine::{Engine, until};

const NAME: &str = "copied";

#[test]
fn a_new_node_begins_with_a_snapshot_and_does_without() {
    let engine = Engine::start();
    let folder = tempfile::tempdir().unwrap();
    let options = Options { snapshot_growth: 40, ..engine.options(NAME) };
    let mut number = 0;
    let mut new = || {
        number += 1;
        ClusterStore::open(&folder.path().join(number.to_string()), &options).unwrap()
    };
    let first = new();
    assert_eq!(first.begun_with(), 0);
    let packaged = draft_with(&first, "hyperty/packaged", "1.0.0", b"code");
    publish(&first, &packaged);
    for n in 0..45 {
        publish(&first, &draft(&format!("hyperty/n{n}"), "1.0.0", "{}"));
    }
    let yanked = first.yank(&packaged.key, &packaged.version, true, None, NOW);
    assert!(matches!(yanked, Ok(Outcome::Created(_))));
    let mut begun = None;
    until("a node begins with a snapshot", || {
        let node = new();
        let has = node.begun_with() > 0;
        begun = has.then_some(node);
        has
    });
    let begun = begun.unwrap();
    assert!(begun.begun_with() >= 40);
    // What comes later it gets from the log, as the others do.
    publish(&first, &draft("hyperty/late", "1.0.0", "{}"));
    until("it has what is new", || begun.revision().unwrap() == first.revision().unwrap());
    check_equal(&first, &begun);
    let digest = packaged.package.unwrap().digest;
    assert_eq!(content(&begun, &digest).unwrap(), b"code");
    begun.verify(&mut |finding| panic!("{finding:?}")).unwrap();
    // One whose parts are gone is not used.
    delete_parts(&engine);
    let without = new();
    assert_eq!(without.begun_with(), 0);
    check_equal(&first, &without);
}

fn check_equal(one: &ClusterStore, other: &ClusterStore) {
    assert_eq!(one.changes(0, 1000).unwrap(), other.changes(0, 1000).unwrap());
    assert_eq!(one.audit(1000, None).unwrap(), other.audit(1000, None).unwrap());
    let found = |store: &ClusterStore| {
        let hits = store.search("n7", None, None, 10).unwrap();
        hits.into_iter().map(|hit| hit.key).collect::<Vec<_>>()
    };
    assert_eq!(found(one).len(), 1);
    assert_eq!(found(one), found(other));
}

/// Deletes the parts of all packages and snapshots.
fn delete_parts(engine: &Engine) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(engine.options(NAME).servers).await.unwrap();
        let parts = jetstream::new(client).get_stream("LEVADA_COPIED_PARTS").await.unwrap();
        parts.purge().filter(format!("levada.{NAME}.part.*.*.*")).await.unwrap();
    });
}
