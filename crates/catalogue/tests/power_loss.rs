//! The machine loses power at every operation on the disk that a scenario makes, and everything that was
//! not synced is lost, or a part of it: rows and blobs alike. Nothing that the store acknowledged may be
//! lost then, and nothing may be half there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Nothing but tests.

#[path = "support/scenario.rs"]
mod scenario;
mod support;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use levada_catalogue::store::embedded::{EmbeddedStore, Files, NewFile, SyncAll};
use levada_catalogue::store::{Blob, StoreError};
use levada_faultfs::{FaultFs, Survival};

use scenario::Model;
use support::{Faulty, in_full, open_on, open_with};

/// How often power is lost at each operation with a part of what was not synced surviving.
const PARTS: u64 = 3;

/// Runs the scenario until power is lost at `operation`; what was acknowledged until then.
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

/// As [`run_until`], and power comes back.
fn run_and_restart(disk: FaultFs, operation: u64, survival: Survival) -> Model {
    let model = run_until(disk, operation);
    assert!(disk.is_off(), "power was to be lost at operation {operation}");
    disk.restart(survival);
    model
}

/// Opens the store and checks it.
fn check(disk: FaultFs, model: &Model, when: &str) {
    let store = open_on(disk).unwrap_or_else(|error| panic!("{when}: {error}"));
    model.check(&store, when);
    assert!(disk.names("blobs/temp").unwrap().is_empty(), "{when}: a file was left");
}

/// How many operations the whole scenario makes.
fn boundaries(disk: FaultFs) -> u64 {
    let model = run_until(disk, u64::MAX);
    assert!(model.is_complete(), "the scenario must succeed as long as there is power: {model:?}");
    disk.operations()
}

/// Every operation in the full run, some of them otherwise; the last ones are those of the last close.
fn some(boundaries: u64, offset: u64) -> impl Iterator<Item = u64> {
    let step = if in_full() { 1 } else { 5 };
    (1 + offset % step..=boundaries).step_by(usize::try_from(step).unwrap())
}

#[test]
fn what_was_acknowledged_holds_if_only_synced_data_survives() {
    let disk = FaultFs::register("catalogue-synced").unwrap();
    let boundaries = boundaries(disk);
    assert!(boundaries > 200, "only {boundaries} operations");
    for operation in 1..=boundaries {
        let model = run_and_restart(disk, operation, Survival::Synced);
        check(disk, &model, &format!("at operation {operation}"));
    }
    println!("{boundaries} boundaries");
}

#[test]
fn what_was_acknowledged_holds_if_a_part_of_the_rest_survives() {
    let disk = FaultFs::register("catalogue-part").unwrap();
    let boundaries = boundaries(disk);
    for seed in 0..PARTS {
        for operation in some(boundaries, seed) {
            let seed = operation * PARTS + seed;
            let model = run_and_restart(disk, operation, Survival::Part(seed));
            check(disk, &model, &format!("at operation {operation}, seed {seed}"));
        }
    }
}

#[test]
fn what_was_acknowledged_holds_if_power_is_lost_again_during_recovery() {
    let disk = FaultFs::register("catalogue-twice").unwrap();
    let boundaries = boundaries(disk);
    for operation in some(boundaries, 3) {
        let model = run_and_restart(disk, operation, Survival::Part(operation));
        let before = disk.operations();
        disk.lose_power_at(before + 1 + operation % 11);
        // Opening recovers and sweeps, closing writes the log back.
        drop(open_on(disk));
        disk.restart(Survival::Part(operation + 1));
        check(disk, &model, &format!("at operation {operation}, then again"));
    }
}

/// Forgets to sync folders, or what is written together.
struct Careless {
    disk: Faulty,
    together: bool,
}

impl Files for Careless {
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
        if of_blobs && !self.together { Ok(()) } else { self.disk.sync_folder(path) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.disk.names(folder)
    }

    fn begin_many(&self, folder: &Path) -> io::Result<SyncAll> {
        if self.together { Ok(Box::new(|| Ok(()))) } else { self.disk.begin_many(folder) }
    }

    fn read(&self, path: &Path) -> io::Result<Option<Blob>> {
        self.disk.read(path)
    }
}

/// The test of the test: a store that forgets one sync is caught.
#[test]
fn a_store_that_does_not_sync_would_be_caught() {
    for (together, name) in [(false, "catalogue-careless"), (true, "catalogue-careless-together")] {
        let disk = FaultFs::register(name).unwrap();
        let open = || open_with(disk, Arc::new(Careless { disk: Faulty(disk), together }));
        let model = run_with(disk, u64::MAX, &open);
        assert!(model.is_complete());
        disk.restart(Survival::Synced);
        let checked = std::panic::catch_unwind(|| check(disk, &model, "carelessly"));
        assert!(checked.is_err(), "blobs that were not on disk were not missed by {name}");
    }
}
