//! The machine loses power at every disk operation of a scenario, and data that was not synced is
//! lost completely or in part, in the database and in blobs. The store must have all that it
//! acknowledged, and no write in part.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use levada_catalogue::store::embedded::{EmbeddedStore, Files, NewFile, SyncAll};
use levada_catalogue::store::{Blob, StoreError};
use levada_faultfs::{FaultFs, Survival};

use super::scenario::Model;
use super::support::{Faulty, in_full, open_on, open_with};

/// How many seeds select, at each operation, the unsynced data that survives.
const SEEDS: u64 = 3;

/// Runs the scenario until power is lost at `operation`. Returns the model of what was
/// acknowledged.
fn run_until(disk: FaultFs, operation: u64) -> Model {
    run_with(disk, operation, &|| open_on(disk))
}

fn run_with(
    disk: FaultFs,
    operation: u64,
    open: &dyn Fn() -> Result<EmbeddedStore, StoreError>,
) -> Model {
    disk.wipe();
    disk.lose_power_at(operation);
    let mut model = Model::default();
    if let Ok(store) = open() {
        drop(model.run(store, open));
    }
    model
}

/// As [`run_until`], then restarts the disk with the data that survives.
fn run_and_restart(disk: FaultFs, operation: u64, survival: Survival) -> Model {
    let model = run_until(disk, operation);
    assert!(disk.is_off(), "the scenario ended before operation {operation}");
    disk.restart(survival);
    model
}

/// Opens the store and checks it against the model.
fn check(disk: FaultFs, model: &Model, when: &str) {
    let store = open_on(disk).unwrap_or_else(|error| panic!("{when}: {error}"));
    model.check(&store, when);
    assert!(disk.names("blobs/temp").unwrap().is_empty(), "{when}: a temporary file is left");
}

/// The number of disk operations of the whole scenario.
fn count_operations(disk: FaultFs) -> u64 {
    let model = run_until(disk, u64::MAX);
    assert!(model.is_complete(), "the scenario fails without a loss of power: {model:?}");
    disk.operations()
}

/// Every operation with full counts, and otherwise every fifth from `offset` on.
fn sample(operations: u64, offset: u64) -> impl Iterator<Item = u64> {
    let step = if in_full() { 1 } else { 5 };
    (1 + offset % step..=operations).step_by(usize::try_from(step).unwrap())
}

#[test]
fn keeps_acknowledged_data_if_only_synced_data_survives() {
    let disk = FaultFs::register("catalogue-synced").unwrap();
    let operations = count_operations(disk);
    assert!(operations > 200, "only {operations} operations");
    for operation in 1..=operations {
        let model = run_and_restart(disk, operation, Survival::Synced);
        check(disk, &model, &format!("at operation {operation}"));
    }
}

#[test]
fn keeps_acknowledged_data_if_some_unsynced_data_survives() {
    let disk = FaultFs::register("catalogue-part").unwrap();
    let operations = count_operations(disk);
    for seed in 0..SEEDS {
        for operation in sample(operations, seed) {
            let seed = operation * SEEDS + seed;
            let model = run_and_restart(disk, operation, Survival::Part(seed));
            check(disk, &model, &format!("at operation {operation}, seed {seed}"));
        }
    }
}

#[test]
fn keeps_acknowledged_data_if_power_is_lost_again_during_recovery() {
    let disk = FaultFs::register("catalogue-twice").unwrap();
    let operations = count_operations(disk);
    for operation in sample(operations, 3) {
        let model = run_and_restart(disk, operation, Survival::Part(operation));
        let before = disk.operations();
        disk.lose_power_at(before + 1 + operation % 11);
        // Opening recovers the log and deletes temporary files; closing checkpoints the log.
        drop(open_on(disk));
        disk.restart(Survival::Part(operation + 1));
        check(disk, &model, &format!("at operation {operation}, then again"));
    }
}

/// Does not sync the folders of blobs, or with `batch` the blobs that are written in one batch.
struct MissingSync {
    disk: Faulty,
    batch: bool,
}

impl Files for MissingSync {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.make_folder(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.disk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let of_blobs = path.file_name().is_some_and(|name| name.len() == 2);
        if of_blobs && !self.batch { Ok(()) } else { self.disk.sync_folder(path) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.disk.names(folder)
    }

    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll> {
        if self.batch { Ok(Box::new(|| Ok(()))) } else { self.disk.begin_many(folder) }
    }

    fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        self.disk.read(path)
    }
}

/// Verifies the check itself: it finds blobs missing if one sync is left out.
#[test]
fn the_check_detects_a_missing_sync() {
    for (batch, name) in [(false, "catalogue-no-folder-sync"), (true, "catalogue-no-batch-sync")] {
        let disk = FaultFs::register(name).unwrap();
        let open = || open_with(disk, Arc::new(MissingSync { disk: Faulty(disk), batch }));
        let model = run_with(disk, u64::MAX, &open);
        assert!(model.is_complete());
        disk.restart(Survival::Synced);
        let checked = std::panic::catch_unwind(|| check(disk, &model, "without a sync"));
        assert!(checked.is_err(), "{name}: the check did not find the lost blobs");
    }
}
