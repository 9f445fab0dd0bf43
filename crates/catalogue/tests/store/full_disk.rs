//! The disk becomes full at any point of a scenario: the store reports [`StoreError::Full`], loses
//! nothing that it acknowledged, leaves no write in part, and continues once there is space.

use std::cell::Cell;

use levada_catalogue::store::StoreError;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_faultfs::{FaultFs, Survival};

use super::scenario::Model;
use super::support::{in_full, open_on};

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. }) && error.to_string().contains("no space left")
}

/// The peak number of bytes on the disk while the scenario runs.
fn peak_usage(disk: FaultFs) -> usize {
    disk.wipe();
    let mut model = Model::default();
    let store = open_on(disk).unwrap();
    let peak = Cell::new(0);
    let open = || {
        let opened = open_on(disk);
        peak.set(peak.get().max(disk.used()));
        opened
    };
    let store = model.run(store, open).map_err(|(error, _)| error).unwrap();
    assert!(model.is_complete());
    peak.set(peak.get().max(disk.used()));
    drop(store);
    peak.get()
}

#[test]
fn reports_a_full_disk_and_loses_nothing() {
    let disk = FaultFs::register("catalogue-full").unwrap();
    let peak = peak_usage(disk);
    let mut refused = 0;
    let step = if in_full() { 509 } else { 4093 };
    for space in (0..peak * 3 / 2).step_by(step) {
        let when = format!("{space} bytes");
        disk.wipe();
        disk.limit(Some(space));
        let mut model = Model::default();
        let store = match open_on(disk) {
            Err(error) => {
                assert!(is_full(&error), "{when}: {error}");
                refused += 1;
                disk.limit(None);
                open_on(disk).unwrap()
            }
            Ok(store) => store,
        };
        let store = run_to_end(disk, &mut model, store, &mut refused, &when);
        assert!(model.is_complete(), "{when}");
        model.check(&store, &when);
        drop(store);
        disk.restart(Survival::Synced);
        model.check(&open_on(disk).unwrap(), &format!("{when}, after a loss of power"));
    }
    assert!(refused > 20, "only {refused} refusals");
}

/// Runs the scenario to its end, and removes the limit of the disk when it is full.
fn run_to_end(
    disk: FaultFs,
    model: &mut Model,
    store: EmbeddedStore,
    refused: &mut u32,
    when: &str,
) -> EmbeddedStore {
    match model.run(store, || open_on(disk)) {
        Ok(store) => store,
        Err((error, store)) => {
            assert!(is_full(&error), "{when}: {error}");
            *refused += 1;
            model.expect_no_effect();
            // Reads work while the disk is full.
            if let Some(store) = &store {
                model.check(store, when);
            }
            disk.limit(None);
            let store = store.unwrap_or_else(|| open_on(disk).unwrap());
            model.run(store, || open_on(disk)).map_err(|(error, _)| error).expect(when)
        }
    }
}
