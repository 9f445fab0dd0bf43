//! The machine loses power at every operation on the disk that a scenario makes, and everything that was
//! not synced is lost, or a part of it. Nothing that the store acknowledged may be lost then, and nothing
//! that was revoked, ended or used up may come back.

mod model;
mod scenario;

use std::path::Path;

use levada_faultfs::{FaultFs, Survival};
use levada_node::store::{Store, StoreError};

use model::Model;

/// How often power is lost at each operation with a part of what was not synced surviving.
const PARTS: u64 = 3;

fn open(disk: &FaultFs) -> Result<Store, StoreError> {
    Store::open_with_vfs(Path::new("node.db"), disk.name())
}

/// Runs the scenario until power is lost at `operation`; what was acknowledged until then.
fn run_until(disk: &FaultFs, operation: u64) -> Model {
    disk.wipe();
    disk.lose_power_at(operation);
    scenario::run(|| open(disk))
}

/// As [`run_until`], and power comes back.
fn run_and_restart(disk: &FaultFs, operation: u64, survival: Survival) -> Model {
    let model = run_until(disk, operation);
    assert!(disk.is_off(), "power was to be lost at operation {operation}");
    disk.restart(survival);
    model
}

/// How many operations the whole scenario makes.
fn boundaries(disk: &FaultFs) -> u64 {
    let model = run_until(disk, u64::MAX);
    assert!(model.is_complete(), "the scenario must succeed as long as there is power");
    disk.operations()
}

#[test]
fn what_was_acknowledged_holds_if_only_synced_data_survives() {
    let disk = FaultFs::register("power-loss-synced").unwrap();
    let boundaries = boundaries(&disk);
    assert!(boundaries > 100, "only {boundaries} operations");
    for operation in 1..=boundaries {
        let model = run_and_restart(&disk, operation, Survival::Synced);
        model.check(&open(&disk).unwrap(), &format!("at operation {operation}"));
    }
    println!("{boundaries} boundaries");
}

#[test]
fn what_was_acknowledged_holds_if_a_part_of_the_rest_survives() {
    let disk = FaultFs::register("power-loss-part").unwrap();
    for operation in 1..=boundaries(&disk) {
        for seed in 0..PARTS {
            let seed = operation * PARTS + seed;
            let model = run_and_restart(&disk, operation, Survival::Part(seed));
            let at = format!("at operation {operation}, seed {seed}");
            model.check(&open(&disk).unwrap(), &at);
        }
    }
}

#[test]
fn what_was_acknowledged_holds_if_power_is_lost_again_during_recovery() {
    let disk = FaultFs::register("power-loss-twice").unwrap();
    for operation in 1..=boundaries(&disk) {
        let model = run_and_restart(&disk, operation, Survival::Part(operation));
        let before = disk.operations();
        disk.lose_power_at(before + 1 + operation % 7);
        // Opening recovers, closing writes the log back.
        drop(open(&disk));
        disk.restart(Survival::Part(operation + 1));
        model.check(&open(&disk).unwrap(), &format!("at operation {operation}, then again"));
    }
}

#[test]
fn a_clean_end_loses_nothing() {
    let disk = FaultFs::register("power-loss-never").unwrap();
    let model = run_until(&disk, u64::MAX);
    disk.restart(Survival::Synced);
    model.check(&open(&disk).unwrap(), "after the scenario");
}

/// The test of the test: a store that does not sync is caught.
#[test]
fn a_store_that_does_not_sync_would_be_caught() {
    let disk = FaultFs::register("power-loss-unsynced").unwrap();
    let flags = rusqlite::OpenFlags::default();
    let connect =
        || rusqlite::Connection::open_with_flags_and_vfs("node.db", flags, disk.name()).unwrap();
    let connection = connect();
    connection
        .execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; CREATE TABLE a (x);
             PRAGMA synchronous = NORMAL; INSERT INTO a VALUES (1);",
        )
        .unwrap();
    disk.lose_power_at(0);
    drop(connection);
    disk.restart(Survival::Synced);
    let connection = connect();
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE").unwrap();
    let rows = connection.query_row("SELECT count(*) FROM a", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows, Ok(0), "the acknowledged row is gone");
}
