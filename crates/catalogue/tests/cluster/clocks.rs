//! Nodes whose clocks are 10 minutes wrong: only the times that versions show depend on them, and
//! what `collect` deletes if its grace is shorter than the difference.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::Draft;
use levada_catalogue::store::cluster::{ClusterStore, Options};
use levada_catalogue::store::conformance::{content, draft, draft_with};
use levada_catalogue::store::{Outcome, Store, StoreError};
use levada_core::{Clock, ManualClock, SystemClock, UnixTime};

use super::engine::{Engine, Setup, until};

const ERROR: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);

/// A node, and its time.
struct Wrong {
    store: ClusterStore,
    now: UnixTime,
}

impl Wrong {
    fn open(folder: &Path, engine: &Engine, now: UnixTime) -> Self {
        let clock = Arc::new(ManualClock::new(now));
        let options = Options { clock, ..engine.options("clocks") };
        Self { store: ClusterStore::open(folder, &options).unwrap(), now }
    }

    fn publish(&self, draft: &Draft) -> Result<Outcome, StoreError> {
        self.store.publish(draft, None, self.now)
    }

    fn collect(&self, grace: Duration) -> u64 {
        self.store.collect(grace, None, self.now).unwrap().blobs
    }
}

fn revision(outcome: Result<Outcome, StoreError>) -> u64 {
    match outcome {
        Ok(Outcome::Created(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_clocks_change_only_the_times_that_are_shown() {
    let engine = Engine::start_as(Setup::single());
    let folder = tempfile::tempdir().unwrap();
    let right = SystemClock.now();
    let times = [right.after(ERROR), UnixTime(right.0 - ERROR.as_secs())];
    let [ahead, behind] =
        times.map(|now| Wrong::open(&folder.path().join(now.0.to_string()), &engine, now));
    let see = |node: &Wrong, revision: u64| {
        until("the other node sees it", || node.store.revision().unwrap() >= revision);
    };

    // Each in turn: the order is that of the log.
    let mut last = 0;
    for n in 0..10 {
        let [from, to] = if n % 2 == 0 { [&ahead, &behind] } else { [&behind, &ahead] };
        let version = draft(&format!("hyperty/o{n}"), "1.0.0", "{}");
        let number = revision(from.publish(&version));
        assert!(number > last, "{number} after {last}");
        last = number;
        see(to, number);
        let found = to.store.get(&version.key, &version.version).unwrap().unwrap();
        assert_eq!((found.revision, found.published), (number, from.now));
        assert_eq!(to.publish(&version).unwrap(), Outcome::Same);
        let other = Draft { descriptor: b"{ }".to_vec(), ..version.clone() };
        assert_eq!(to.publish(&other).unwrap(), Outcome::Conflict);
        for yanked in [true, false] {
            let outcome = to.store.yank(&version.key, &version.version, yanked, None, to.now);
            last = revision(outcome);
            see(from, last);
        }
    }
    let changes = |node: &Wrong| node.store.changes(0, 1000).unwrap();
    assert_eq!(changes(&ahead).len(), 30);
    assert_eq!(changes(&ahead), changes(&behind));

    // A package between its upload and its version stays, whichever node collects.
    let under_way = [&ahead, &behind].map(|node| {
        let name = format!("hyperty/package{}", node.now);
        draft_with(&node.store, &name, "1.0.0", name.as_bytes())
    });
    let digests = under_way.each_ref().map(|version| version.package.as_ref().unwrap().digest);
    for node in [&ahead, &behind] {
        let has = |digest| node.store.has_blob(digest).unwrap();
        until("the node has both packages", || digests.iter().all(has));
        assert_eq!(node.collect(HOUR), 0);
    }
    revision(behind.publish(&under_way[0]));
    assert_eq!(
        content(&ahead.store, &digests[0]).unwrap(),
        content(&behind.store, &digests[0]).unwrap()
    );

    // With a grace that is shorter than the difference, the node that is ahead deletes it; the
    // publication is refused.
    assert_eq!(behind.collect(ERROR / 2), 0);
    assert_eq!(ahead.collect(ERROR / 2), 1);
    until("it is deleted", || !behind.store.has_blob(&digests[1]).unwrap());
    let refused = behind.publish(&under_way[1]);
    assert!(matches!(refused, Err(StoreError::NoSuchBlob(_))), "{refused:?}");
    assert!(behind.store.has_blob(&digests[0]).unwrap());
}
