//! A real disk that is full: a small tmpfs in a mount namespace of its own. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Nothing but tests.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use levada_catalogue::store::embedded::EmbeddedStore;
use levada_catalogue::store::{Store, StoreError};
use levada_core::{Clock, SystemClock};

use support::{check_consistent, content, draft, publish, upload};

const FOLDER: &str = "LEVADA_TEST_FOLDER";
const ROOM: &str = "4m";

#[test]
fn on_a_full_disk_the_answer_says_so_and_nothing_is_lost() {
    // This very test is what is run there.
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_a_small_disk(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size={ROOM} none \"$1\" && shift && exec \"$@\"");
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_full_disk_the_answer_says_so_and_nothing_is_lost", "--nocapture"])
        .env(FOLDER, folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn blob(n: u64) -> Vec<u8> {
    (0..100_000_u64).map(|at| ((at * (2 * n + 1)) >> 3) as u8).collect()
}

fn on_a_small_disk(folder: &Path) {
    let folder = folder.join("catalogue");
    let store = EmbeddedStore::open(&folder).unwrap();
    let full = |error: StoreError| assert!(matches!(error, StoreError::Full { .. }), "{error}");

    let mut with_package = 0;
    let refused = loop {
        let outcome = upload(&store, &blob(with_package))
            .and_then(|_| publish(&store, &draft(with_package, 0, Some(&blob(with_package)))));
        match outcome {
            Ok(_) => with_package += 1,
            Err(error) => break error,
        }
        assert!(with_package < 1000, "the disk is not small");
    };
    full(refused);
    assert!(with_package > 5, "{with_package}");

    let mut without = 0;
    let refused = loop {
        match publish(&store, &draft(with_package + 1, without, None)) {
            Ok(_) => without += 1,
            Err(error) => break error,
        }
        assert!(without < 100_000, "the disk is not small");
    };
    full(refused);

    // Room is kept back for what takes back and what frees.
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
    check(&store, "full, and opened again");

    let mut larger = Command::new("mount");
    larger.args(["-o", "remount,size=8m"]).arg(folder.parent().unwrap());
    assert!(larger.status().unwrap().success());
    let later = SystemClock.now().after(Duration::from_secs(60));
    store.collect(Duration::ZERO, None, later).unwrap();
    publish(&store, &draft(with_package + 1, without, None)).unwrap();
    check_consistent(&store, "with room again");
}
