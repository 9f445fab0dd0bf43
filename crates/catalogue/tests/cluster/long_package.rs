//! A package of 500 MiB.

use levada_catalogue::store::cluster::ClusterStore;
use levada_catalogue::store::conformance::{draft, package, publish};
use levada_catalogue::store::{Blob, Store};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::engine::{Engine, Setup, until};
use crate::store::in_full;

const LENGTH: u64 = 500 << 20;
const PIECE: usize = 1 << 20;

#[test]
fn a_package_of_500_mib_is_the_same_at_another_node() {
    if !in_full() {
        eprintln!("skipped: LEVADA_TEST_FULL is not set");
        return;
    }
    let engine = Engine::start_as(Setup::single());
    let folder = tempfile::tempdir().unwrap();
    let open =
        |name| ClusterStore::open(&folder.path().join(name), &engine.options("long")).unwrap();
    let [a, b] = ["a", "b"].map(open);
    let mut writer = a.begin_blob().unwrap();
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut piece = vec![0; PIECE];
    for _ in 0..LENGTH / PIECE as u64 {
        random.fill_bytes(&mut piece);
        writer.write(&piece).unwrap();
    }
    let whole = writer.finish(None).unwrap();
    assert_eq!(whole.1, LENGTH);
    let mut version = draft("runtime/long", "1.0.0", "{}");
    version.package = Some(package(whole.0, LENGTH));
    publish(&a, &version);
    until("b sees it", || b.get(&version.key, &version.version).unwrap().is_some());
    let blob = b.open_blob(&whole.0).unwrap().unwrap();
    assert!(matches!(blob, Blob::File(..)), "it is in memory");
    assert_eq!(blob.digest().unwrap(), whole);
}
