//! The conformance suite.

use std::sync::atomic::{AtomicUsize, Ordering};

use levada_catalogue::store::cluster::ClusterStore;
use levada_catalogue::store::conformance::check_all;
use tempfile::TempDir;

use super::engine::Engine;

#[test]
fn conforms() {
    let engine = Engine::start();
    let next = AtomicUsize::new(0);
    let mut folders = Vec::<TempDir>::new();
    check_all(|| {
        let name = format!("c{}", next.fetch_add(1, Ordering::Relaxed));
        folders.push(tempfile::tempdir().unwrap());
        let folder = folders.last().unwrap().path().join("replica");
        ClusterStore::open(&folder, &engine.options(&name)).unwrap()
    });
}
