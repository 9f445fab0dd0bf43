//! Publishers that run while something fails, and the comparison of the nodes afterwards.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use levada_catalogue::model::Draft;
use levada_catalogue::store::cluster::ClusterStore;
use levada_catalogue::store::conformance::{NOW, draft};
use levada_catalogue::store::{Change, Event, MAX_PAGE, Outcome, Store, StoreError};

use super::engine::until;

/// What a publisher was told about a version.
pub enum Told<'a> {
    /// The version of this object was published, and is acknowledged.
    Published(&'a str),
    /// The engine cannot be used, or has not answered.
    Failed,
}

/// Publishes versions, until `tell` returns false.
pub fn publish(store: &ClusterStore, name: &str, mut tell: impl FnMut(Told<'_>) -> bool) {
    for n in 0.. {
        // Each tenth version is one that the others publish, too, with another descriptor.
        let key =
            if n % 10 == 9 { format!("hyperty/of-all-{n}") } else { format!("hyperty/{name}-{n}") };
        let told = match store.publish(&draft(&key, "1.0.0", &descriptor(name)), None, NOW) {
            Ok(Outcome::Created(_)) => Some(Told::Published(&key)),
            Ok(Outcome::Same | Outcome::Conflict) => None,
            Err(StoreError::Unavailable(_) | StoreError::Uncertain) => {
                thread::sleep(Duration::from_millis(50));
                Some(Told::Failed)
            }
            Err(error) => panic!("{error}"),
        };
        if told.is_some_and(|told| !tell(told)) {
            return;
        }
        // All changes are compared in the end.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Publishes a version with a package of these bytes. While the engine cannot be used, `failed`
/// gets each error, and it tries again.
pub fn publish_with(
    store: &ClusterStore,
    version: &Draft,
    bytes: &[u8],
    mut failed: impl FnMut(StoreError),
) {
    let try_once = || {
        let mut writer = store.begin_blob()?;
        writer.write(bytes)?;
        writer.finish(None)?;
        store.publish(version, None, NOW)
    };
    until("publishing goes on", || match try_once() {
        Ok(Outcome::Created(_) | Outcome::Same) => true,
        Err(error @ (StoreError::Unavailable(_) | StoreError::Uncertain)) => {
            failed(error);
            false
        }
        other => panic!("{other:?}"),
    });
}

fn descriptor(name: &str) -> String {
    format!("{{\"by\":\"{name}\"}}")
}

/// Waits until the nodes are equal. Each must have every acknowledged version, of this key and
/// publisher, and each version once.
pub fn check_equal(stores: &[ClusterStore], acknowledged: &[(String, String)]) {
    let newest = || stores.iter().map(|store| store.revision().unwrap());
    until("the nodes are equal", || newest().min() == newest().max());
    let [first, rest @ ..] = stores else { panic!("no nodes") };
    let changes = all_changes(first);
    rest.iter().for_each(|store| assert_eq!(all_changes(store), changes));
    let mut published = BTreeSet::new();
    for change in changes.iter().filter(|change| change.event == Event::Published) {
        assert!(published.insert(change.key.clone()), "{} was published twice", change.key);
    }
    for (key, by) in acknowledged {
        let whole = draft(key, "1.0.0", &descriptor(by));
        for store in stores {
            let found = store.get(&whole.key, &whole.version).unwrap();
            let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is missing"));
            assert_eq!(found.descriptor, whole.descriptor, "{key} was acknowledged to another one");
        }
    }
    eprintln!("{} acknowledged, {} published", acknowledged.len(), published.len());
    assert!(published.len() >= acknowledged.len());
}

fn all_changes(store: &ClusterStore) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    loop {
        let after = all.last().map_or(0, |change| change.revision);
        let page = store.changes(after, MAX_PAGE).unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}
