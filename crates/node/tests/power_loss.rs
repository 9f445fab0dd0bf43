//! Power fails at each disk operation of a scenario, and the data that was not synced is lost
//! completely or in part. The store must keep everything that it acknowledged, and nothing that was
//! revoked, ended or used up may become valid again.

mod model;
mod scenario;

use std::path::Path;

use levada_faultfs::{FaultFs, Survival};
use levada_node::store::{Store, StoreError};

use model::Model;

/// How many times power fails at each operation with a part of the unsynced data surviving.
const PARTS: u64 = 3;

fn open(disk: &FaultFs) -> Result<Store, StoreError> {
    Store::open_with_vfs(Path::new("node.db"), disk.name())
}

/// Runs the scenario until power fails at `operation`: what the store acknowledged until then.
fn run_until(disk: &FaultFs, operation: u64) -> Model {
    disk.wipe();
    disk.lose_power_at(operation);
    scenario::run(|| open(disk))
}

/// As [`run_until`], then restores power.
fn run_and_restart(disk: &FaultFs, operation: u64, survival: Survival) -> Model {
    let model = run_until(disk, operation);
    assert!(disk.is_off(), "power did not fail at operation {operation}");
    disk.restart(survival);
    model
}

/// The number of disk operations of the whole scenario.
fn boundaries(disk: &FaultFs) -> u64 {
    let model = run_until(disk, u64::MAX);
    assert!(model.is_complete(), "the scenario fails without a loss of power");
    disk.operations()
}

#[test]
fn acknowledged_changes_survive_if_only_synced_data_does() {
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
fn acknowledged_changes_survive_if_part_of_the_unsynced_data_does() {
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
fn acknowledged_changes_survive_a_second_power_loss_during_recovery() {
    let disk = FaultFs::register("power-loss-twice").unwrap();
    for operation in 1..=boundaries(&disk) {
        let model = run_and_restart(&disk, operation, Survival::Part(operation));
        let before = disk.operations();
        disk.lose_power_at(before + 1 + operation % 7);
        // Opening recovers; closing writes the log back into the database.
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

/// Checks the test itself: it detects a store that does not sync.
#[test]
fn a_store_that_does_not_sync_is_detected() {
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
