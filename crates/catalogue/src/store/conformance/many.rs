use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use levada_core::{Clock, SystemClock, sha256};

use super::support::{NOW, assert_is, content, draft, draft_with};
use crate::store::{Outcome, Store, StoreError};

const THREADS: usize = 8;

pub fn one_of_several_concurrent_publications_wins(store: &dyn Store) {
    for round in 0..20 {
        let version = format!("{round}.0.0");
        let contender = |n: usize| draft("hyperty/a", &version, &format!("{{\"n\":{n}}}"));
        let outcomes: Vec<Outcome> = thread::scope(|scope| {
            let race = |n| scope.spawn(move || store.publish(&contender(n), None, NOW).unwrap());
            let racers: Vec<_> = (0..THREADS).map(race).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        let winners: Vec<usize> =
            (0..THREADS).filter(|n| matches!(outcomes[*n], Outcome::Created(_))).collect();
        let [winner] = winners[..] else { panic!("{outcomes:?}") };
        let losers = outcomes.iter().filter(|outcome| **outcome == Outcome::Conflict).count();
        assert_eq!(losers, THREADS - 1);
        let whole = contender(winner);
        assert_is(&store.get(&whole.key, &whole.version).unwrap().unwrap(), &whole, None);
    }
}

/// The grace period protects an upload until it is published. Without one, publishing may fail with
/// `NoSuchBlob`, and must not succeed without the package.
pub fn concurrent_collection_keeps_published_packages(store: &dyn Store) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let collector = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let later = SystemClock.now().after(Duration::from_secs(5));
                store.collect(Duration::ZERO, None, later).unwrap();
            }
        });
        // The threads share their contents, so that each is uploaded while another's is collected.
        let publish = |thread| move || (0..25).for_each(|n| publish_with_retry(store, thread, n));
        let publishers: Vec<_> = (0..3).map(|thread| scope.spawn(publish(thread))).collect();
        let outcomes: Vec<_> = publishers.into_iter().map(|publisher| publisher.join()).collect();
        // Also after a panic: the collector ends only by this.
        done.store(true, Ordering::Relaxed);
        collector.join().unwrap();
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let mut findings = Vec::new();
    assert_eq!(store.verify(&mut |finding| findings.push(finding)).unwrap().versions, 75);
    assert!(findings.is_empty(), "{findings:?}");
}

/// Uploads and publishes, and retries until both succeed.
fn publish_with_retry(store: &dyn Store, thread: usize, n: usize) {
    let bytes = vec![0xa5; 100 * (n / 5)];
    for _ in 0..10_000 {
        let whole = draft_with(store, &format!("hyperty/t{thread}"), &format!("{n}.0.0"), &bytes);
        match store.publish(&whole, None, NOW) {
            Ok(outcome) => {
                assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}");
                assert_eq!(content(store, &sha256(&[&bytes])).unwrap(), bytes);
                return;
            }
            Err(StoreError::NoSuchBlob(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("every upload was collected before it was published");
}
