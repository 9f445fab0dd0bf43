//! The disk is full, at any moment: an error that says so, nothing lost, nothing half there; and when there is
//! room again, the store goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Nothing but tests.

#[path = "support/scenario.rs"]
mod scenario;
mod support;

use levada_catalogue::store::StoreError;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_faultfs::{FaultFs, Survival};

use scenario::Model;
use support::{in_full, open_on};

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. }) && error.to_string().contains("no space left")
}

/// The most that the disk holds while the scenario runs.
fn most_used(disk: FaultFs) -> usize {
    disk.wipe();
    let mut model = Model::default();
    let store = open_on(disk).unwrap();
    let most = std::cell::Cell::new(0);
    let open = || {
        let opened = open_on(disk);
        most.set(most.get().max(disk.used()));
        opened
    };
    let store = model.run(store, open).map_err(|(error, _)| error).unwrap();
    assert!(model.is_complete());
    most.set(most.get().max(disk.used()));
    drop(store);
    most.get()
}

#[test]
fn without_room_the_answer_says_so_and_nothing_is_lost() {
    let disk = FaultFs::register("catalogue-full").unwrap();
    let most = most_used(disk);
    let (mut refused, step) = (0, if in_full() { 509 } else { 4093 });
    for room in (0..most * 3 / 2).step_by(step) {
        let when = format!("{room} bytes");
        disk.wipe();
        disk.limit(Some(room));
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
        let store = go_on(disk, &mut model, store, &mut refused, &when);
        assert!(model.is_complete(), "{when}");
        model.check(&store, &when);
        drop(store);
        disk.restart(Survival::Synced);
        model.check(&open_on(disk).unwrap(), &format!("{when}, after a loss of power"));
    }
    assert!(refused > 20, "only {refused} refusals");
}

/// Runs the scenario to its end, and makes room when there is none.
fn go_on(
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
            model.forget_failure();
            // What is there can be read while there is no room.
            if let Some(store) = &store {
                model.check(store, when);
            }
            disk.limit(None);
            let store = store.unwrap_or_else(|| open_on(disk).unwrap());
            model.run(store, || open_on(disk)).map_err(|(error, _)| error).expect(when)
        }
    }
}
