//! A full file system: a small tmpfs in a mount namespace of its own. Needs root.

use std::path::Path;
use std::time::Duration;

use levada_catalogue::store::embedded::EmbeddedStore;
use levada_catalogue::store::{Store, StoreError};
use levada_core::{Clock, SystemClock};

use super::support::{check_consistent, content, draft, publish, upload};
use crate::{child, isolated};

const SIZE: &str = "4m";
const LARGER_SIZE: &str = "8m";

#[test]
fn reports_a_full_file_system_and_loses_nothing() {
    if let Some(folder) = child::folder() {
        return fill_and_enlarge(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "reports_a_full_file_system_and_loses_nothing";
    isolated::run_on_tmpfs(module_path!(), test, folder.path(), SIZE);
}

fn blob(n: u64) -> Vec<u8> {
    (0..100_000_u64).map(|at| ((at * (2 * n + 1)) >> 3) as u8).collect()
}

/// The child: `folder` is the tmpfs.
fn fill_and_enlarge(folder: &Path) {
    let folder = folder.join("catalogue");
    let store = EmbeddedStore::open(&folder).unwrap();
    let assert_full =
        |error: StoreError| assert!(matches!(error, StoreError::Full { .. }), "{error}");

    let mut with_package = 0;
    let refused = loop {
        let outcome = upload(&store, &blob(with_package))
            .and_then(|_| publish(&store, &draft(with_package, 0, Some(&blob(with_package)))));
        match outcome {
            Ok(_) => with_package += 1,
            Err(error) => break error,
        }
        assert!(with_package < 1000, "the file system does not become full");
    };
    assert_full(refused);
    assert!(with_package > 5, "{with_package}");

    let mut without = 0;
    let refused = loop {
        match publish(&store, &draft(with_package + 1, without, None)) {
            Ok(_) => without += 1,
            Err(error) => break error,
        }
        assert!(without < 100_000, "the file system does not become full");
    };
    assert_full(refused);

    // The store reserves space for yanks and for the collection of blobs.
    let first = draft(0, 0, None);
    for yanked in [true, false] {
        store.yank(&first.key, &first.version, yanked, None, SystemClock.now()).unwrap();
    }
    let later = SystemClock.now().after(Duration::from_secs(60));
    store.collect(Duration::ZERO, None, later).unwrap();

    let check = |store: &EmbeddedStore, when: &str| {
        check_consistent(store, when);
        for n in 0..with_package {
            let whole = draft(n, 0, Some(&blob(n)));
            let digest = whole.package.as_ref().unwrap().digest;
            assert!(store.get(&whole.key, &whole.version).unwrap().is_some(), "{when}: {n}");
            assert_eq!(content(store, &digest), Some(blob(n)), "{when}: {n}");
        }
        let key = draft(with_package + 1, 0, None).key;
        assert_eq!(store.versions(&key).unwrap().len() as u64, without, "{when}");
    };
    check(&store, "full");
    drop(store);
    let store = EmbeddedStore::open(&folder).unwrap();
    check(&store, "full, and reopened");

    isolated::resize_tmpfs(folder.parent().unwrap(), LARGER_SIZE);
    let later = SystemClock.now().after(Duration::from_secs(60));
    store.collect(Duration::ZERO, None, later).unwrap();
    publish(&store, &draft(with_package + 1, without, None)).unwrap();
    check_consistent(&store, "enlarged");
}
