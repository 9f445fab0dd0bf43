//! A sequence of calls on a store whose disk fails in between, and a model of what the store must
//! contain afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_catalogue::store::embedded::EmbeddedStore;
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::{Clock, SystemClock, sha256};

use super::support::{NOW, check_consistent, content, draft, publish, upload};

/// One call. The numbers identify objects, versions and blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Upload(u8),
    Publish {
        object: u64,
        version: u64,
        blob: Option<u8>,
    },
    Yank {
        object: u64,
        version: u64,
        yanked: bool,
    },
    /// Versions 1, 2, … of an object and their blobs, in one batch.
    Batch {
        object: u64,
        blobs: &'static [u8],
    },
    Collect,
    /// The store is closed, which checkpoints the write-ahead log, and opened again.
    Reopen,
}

use Step::{Batch, Collect, Publish, Reopen, Upload, Yank};

pub const STEPS: &[Step] = &[
    Upload(1),
    Publish { object: 1, version: 1, blob: Some(1) },
    Publish { object: 2, version: 1, blob: None },
    Upload(2),
    Publish { object: 1, version: 2, blob: Some(2) },
    Yank { object: 1, version: 2, yanked: true },
    Upload(3),
    Collect,
    Reopen,
    Upload(3),
    Upload(4),
    Publish { object: 3, version: 1, blob: Some(3) },
    Yank { object: 1, version: 2, yanked: false },
    Yank { object: 2, version: 1, yanked: true },
    Batch { object: 5, blobs: &[6, 1] },
    // Enough blobs for the store to sync them together instead of one by one.
    Batch { object: 7, blobs: &[8, 9, 2, 10, 11, 12, 8] },
    Upload(1),
    Publish { object: 2, version: 2, blob: Some(1) },
    Collect,
    Upload(4),
    Publish { object: 4, version: 1, blob: Some(4) },
    Reopen,
    Publish { object: 4, version: 2, blob: Some(4) },
    Upload(5),
    Batch { object: 6, blobs: &[7, 7] },
];

/// The highest number of a blob.
const BLOBS: u8 = 12;

/// The content of the blob with this number.
pub fn bytes(blob: u8) -> Vec<u8> {
    (0..usize::from(blob) * 700).map(|at| blob ^ (at % 251) as u8).collect()
}

/// What was acknowledged: each version with its blob and whether it is yanked, and the revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    versions: BTreeMap<(u64, u64), (Option<u8>, bool)>,
    revision: u64,
}

impl State {
    fn after(&self, step: Step) -> Self {
        let mut state = self.clone();
        match step {
            Publish { object, version, blob } => {
                state.versions.insert((object, version), (blob, false));
                state.revision += 1;
            }
            Yank { object, version, yanked } => {
                state.versions.get_mut(&(object, version)).unwrap().1 = yanked;
                state.revision += 1;
            }
            Batch { object, blobs } => {
                for (version, blob) in (1..).zip(blobs) {
                    state.versions.insert((object, version), (Some(*blob), false));
                    state.revision += 1;
                }
            }
            Upload(_) | Collect | Reopen => {}
        }
        state
    }
}

/// What was acknowledged, and the one call whose result is unknown.
#[derive(Debug, Default)]
pub struct Model {
    state: State,
    /// Blobs that were uploaded after the last collection began: they must still be there.
    uploaded: BTreeSet<u8>,
    done: usize,
    in_flight: Option<Step>,
}

impl Model {
    pub fn is_complete(&self) -> bool {
        self.done == STEPS.len()
    }

    /// Runs the remaining steps until one fails. The error comes with the store, unless the store
    /// could not be reopened.
    pub fn run(
        &mut self,
        mut store: EmbeddedStore,
        open: impl Fn() -> Result<EmbeddedStore, StoreError>,
    ) -> Result<EmbeddedStore, (StoreError, Option<EmbeddedStore>)> {
        while let Some(step) = STEPS.get(self.done) {
            self.in_flight = Some(*step);
            if *step == Collect {
                self.uploaded.clear();
            }
            if *step == Reopen {
                drop(store);
                store = open().map_err(|error| (error, None))?;
            } else if let Err(error) = apply(&store, *step) {
                return Err((error, Some(store)));
            }
            self.acknowledge(*step);
        }
        Ok(store)
    }

    /// Expects no effect of the step that failed: the store guarantees that as long as the process
    /// runs.
    pub fn expect_no_effect(&mut self) {
        self.in_flight = None;
    }

    fn acknowledge(&mut self, step: Step) {
        self.state = self.state.after(step);
        if let Upload(blob) = step {
            self.uploaded.insert(blob);
        }
        self.in_flight = None;
        self.done += 1;
    }

    /// Asserts that the store has all that was acknowledged, and the call in flight either
    /// completely or not at all.
    pub fn check(&self, store: &EmbeddedStore, when: &str) {
        let when = format!("{when}, {:?}", self.in_flight);
        check_consistent(store, &when);
        let mut found = State { revision: store.revision().unwrap(), ..State::default() };
        store
            .each(&mut |it| {
                let object: u64 = it.key.name.as_str()["object".len()..].parse().unwrap();
                let version = it.version.patch;
                let of =
                    |blob: &u8| it.package.as_ref().unwrap().digest == sha256(&[&bytes(*blob)]);
                let blob = it.package.as_ref().map(|_| (1..=BLOBS).find(of).unwrap());
                let whole = draft(object, version, blob.map(bytes).as_deref());
                assert_eq!(it.descriptor, whole.descriptor, "{when}");
                if let Some(blob) = blob {
                    let digest = sha256(&[&bytes(blob)]);
                    assert_eq!(content(store, &digest), Some(bytes(blob)), "{when}: blob {blob}");
                }
                found.versions.insert((object, version), (blob, it.yanked));
            })
            .unwrap();
        let after = self.in_flight.map(|step| self.state.after(step));
        assert!(
            found == self.state || Some(&found) == after.as_ref(),
            "{when}: found {found:?}, expected {:?}",
            self.state
        );
        for blob in &self.uploaded {
            let digest = sha256(&[&bytes(*blob)]);
            assert!(store.has_blob(&digest).unwrap(), "{when}: blob {blob}");
            assert_eq!(content(store, &digest), Some(bytes(*blob)), "{when}: blob {blob}");
        }
        let audited = store.audit(1000, None).unwrap().len() as u64;
        assert!(audited >= found.revision, "{when}: {audited} audit entries");
    }
}

fn apply(store: &EmbeddedStore, step: Step) -> Result<(), StoreError> {
    match step {
        Upload(blob) => upload(store, &bytes(blob)).map(drop),
        Publish { object, version, blob } => {
            publish(store, &draft(object, version, blob.map(bytes).as_deref())).map(drop)
        }
        Yank { object, version, yanked } => {
            let whole = draft(object, version, None);
            store.yank(&whole.key, &whole.version, yanked, None, NOW).map(drop)
        }
        Batch { object, blobs } => {
            let contents: Vec<_> = blobs.iter().map(|blob| bytes(*blob)).collect();
            let slices: Vec<_> = contents.iter().map(Vec::as_slice).collect();
            store.add_blobs(&slices)?;
            let drafts: Vec<_> = (1..)
                .zip(&contents)
                .map(|(version, content)| draft(object, version, Some(content)))
                .collect();
            let outcomes = store.publish_all(&drafts, None, NOW)?;
            let is_new = |outcome: &Outcome| matches!(outcome, Outcome::Created(_));
            assert!(outcomes.iter().all(is_new), "{outcomes:?}");
            Ok(())
        }
        Collect => {
            let later = SystemClock.now().after(Duration::from_secs(60));
            store.collect(Duration::ZERO, None, later).map(drop)
        }
        Reopen => panic!("`Model::run` reopens the store"),
    }
}
