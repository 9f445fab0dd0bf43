//! Full disks: that of a server, and that of a node. Needs root, for a tmpfs in a mount namespace
//! of its own.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use levada_catalogue::model::Draft;
use levada_catalogue::store::Store;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{content, draft, draft_with, package, publish};
use levada_core::sha256;

use super::engine::{Engine, Setup, until};
use super::leader::leader;
use super::load;
use crate::store::in_full;
use crate::{child, isolated};

/// The name of the catalogue.
const NAME: &str = "full";
/// The file systems: the packages of the server are longer than the first, and fit into the second.
const SIZE: &str = "16m";
const LARGER_SIZE: &str = "256m";
const PACKAGES: u64 = 48;
const PACKAGE: u64 = 512 * 1024;

fn open(folder: &Path, options: &Options) -> ClusterStore {
    ClusterStore::open(folder, options).unwrap()
}

#[test]
fn a_server_with_a_full_disk_stops_nothing() {
    if let Some(disk) = child::folder() {
        return fill_a_server(&disk);
    }
    if !in_full() {
        eprintln!("skipped: LEVADA_TEST_FULL is not set");
        return;
    }
    if isolated::can_isolate() {
        let folder = tempfile::tempdir().unwrap();
        let test = "a_server_with_a_full_disk_stops_nothing";
        isolated::run_on_tmpfs(module_path!(), test, folder.path(), SIZE);
    }
}

/// A version with a package of bytes that only it has.
fn long(n: u64) -> (Draft, Vec<u8>) {
    let bytes: Vec<u8> = (0..PACKAGE).map(|at| ((at * (2 * n + 1)) >> 3) as u8).collect();
    let package = Some(package(sha256(&[&bytes]), PACKAGE));
    (Draft { package, ..draft(&format!("hyperty/long{n}"), "1.0.0", "{}") }, bytes)
}

/// The child: `disk` is the tmpfs.
fn fill_a_server(disk: &Path) {
    let setup = Setup { first_data: Some(disk.join("data")), ..Setup::default() };
    let mut engine = Engine::start_as(setup);
    let folder = tempfile::tempdir().unwrap();
    let options = engine.options(NAME);
    let short = Options { write_timeout: Options::default().write_timeout, ..options.clone() };
    let store = open(&folder.path().join("a"), &options);
    drop(store);
    let store = open(&folder.path().join("a"), &short);
    let errors = RefCell::new(BTreeSet::new());
    let publish_long = |numbers: std::ops::Range<u64>| {
        for n in numbers {
            let (version, bytes) = long(n);
            load::publish_with(&store, &version, &bytes, |error| {
                errors.borrow_mut().insert(error.to_string());
            });
        }
    };
    publish_long(0..PACKAGES);
    eprintln!("while a disk was full: {:?}", errors.borrow());
    let disk_now = rustix::fs::statvfs(disk).unwrap();
    let free = disk_now.f_bavail * disk_now.f_frsize;
    assert!(free < 2 * PACKAGE, "the disk is not full: {free} bytes");

    isolated::resize_tmpfs(disk, LARGER_SIZE);
    engine.kill(0);
    engine.start_one(0);
    until("the server catches up", || leader(&engine, NAME).is_some_and(|(_, current)| current));
    // Without another one, it is needed.
    engine.kill(1);
    publish_long(PACKAGES..PACKAGES + 2);
    let new = open(&folder.path().join("new"), &options);
    until("the nodes are equal", || new.revision().unwrap() == store.revision().unwrap());
    for n in 0..PACKAGES + 2 {
        let (version, bytes) = long(n);
        let found = new.get(&version.key, &version.version).unwrap().unwrap();
        assert!(content(&new, &found.package.unwrap().digest).unwrap() == bytes, "{n}");
    }
    assert_eq!(new.changes(0, 1000).unwrap().len() as u64, PACKAGES + 2);
}

#[test]
fn a_node_with_a_full_disk_answers_and_catches_up() {
    if let Some(disk) = child::folder() {
        return fill_a_node(&disk);
    }
    if isolated::can_isolate() {
        let folder = tempfile::tempdir().unwrap();
        let test = "a_node_with_a_full_disk_answers_and_catches_up";
        isolated::run_on_tmpfs(module_path!(), test, folder.path(), SIZE);
    }
}

/// The child: `disk` is the tmpfs.
fn fill_a_node(disk: &Path) {
    let engine = Engine::start_as(Setup::single());
    let elsewhere = tempfile::tempdir().unwrap();
    let options = engine.options(NAME);
    let a = open(&elsewhere.path().join("a"), &options);
    let b = open(&disk.join("b"), &options);
    let first = draft_with(&a, "hyperty/first", "1.0.0", b"code");
    publish(&a, &first);
    let has_first = |b: &ClusterStore| {
        b.get(&first.key, &first.version)
            .unwrap()
            .is_some_and(|found| content(b, &found.package.unwrap().digest).unwrap() == b"code")
    };
    until("b sees it", || has_first(&b));

    let filler = disk.join("filler");
    let mut file = File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let (second, bytes) = long(0);
    load::publish_with(&a, &second, &bytes, |error| panic!("{error}"));
    let descriptor = format!("{{\"text\":\"{}\"}}", "x".repeat(100_000));
    for n in 0..50 {
        publish(&a, &draft(&format!("hyperty/long{n}"), "2.0.0", &descriptor));
    }
    let assert_behind = |b: &ClusterStore| {
        until("b says that it is behind", || {
            let lag = b.lag().unwrap();
            lag.changes > 0 && lag.fault.is_some_and(|fault| fault.contains("no space left"))
        });
        assert!(b.revision().unwrap() < a.revision().unwrap());
        assert!(has_first(b));
    };
    assert_behind(&b);
    drop(b);
    let b = open(&disk.join("b"), &options);
    assert_behind(&b);

    std::fs::remove_file(&filler).unwrap();
    drop(file);
    until("b catches up", || b.revision().unwrap() == a.revision().unwrap());
    assert_eq!(b.changes(0, 1000).unwrap(), a.changes(0, 1000).unwrap());
    assert!(content(&b, &second.package.unwrap().digest).unwrap() == bytes);
    until("the fault is over", || b.lag().unwrap().fault.is_none());
    let mut findings = Vec::new();
    b.verify(&mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}
