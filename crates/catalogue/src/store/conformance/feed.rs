use std::time::Duration;

use levada_core::{Clock, Identity, SystemClock, UnixTime};

use super::support::{NOW, draft, publish, upload};
use crate::model::Draft;
use crate::store::{Action, Event, Outcome, Store, StoreError};

pub fn every_change_has_a_revision(store: &dyn Store) {
    assert_eq!((store.revision().unwrap(), store.changes(0, 10).unwrap()), (0, Vec::new()));
    let a = draft("hyperty/a", "1.0.0", "{}");
    let b = draft("runtime/b", "2.0.0", "{}");
    let revisions = [publish(store, &a), publish(store, &b)];
    let yank = |draft: &Draft, yanked| match store
        .yank(&draft.key, &draft.version, yanked, None, NOW)
        .unwrap()
    {
        Outcome::Created(revision) => revision,
        other => panic!("{other:?}"),
    };
    let all = [revisions[0], revisions[1], yank(&a, true), yank(&a, false)];
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    assert_eq!(store.revision().unwrap(), all[3]);
    let changes = store.changes(0, 10).unwrap();
    let found: Vec<_> =
        changes.iter().map(|it| (it.revision, it.key.to_string(), it.event)).collect();
    let a = "hyperty/a".to_owned();
    assert_eq!(
        found,
        [
            (all[0], a.clone(), Event::Published),
            (all[1], "runtime/b".to_owned(), Event::Published),
            (all[2], a.clone(), Event::Yanked),
            (all[3], a, Event::Unyanked),
        ]
    );
    assert_eq!(changes[1].version, b.version);
    assert_eq!(store.get(&b.key, &b.version).unwrap().unwrap().revision, all[1]);
}

pub fn changes_come_in_pages(store: &dyn Store) {
    let drafts: Vec<Draft> =
        (0..25).map(|n| draft("hyperty/a", &format!("{n}.0.0"), "{}")).collect();
    store.publish_all(&drafts, None, NOW).unwrap();
    let mut after = 0;
    let mut versions = Vec::new();
    loop {
        let page = store.changes(after, 7).unwrap();
        assert!(page.len() <= 7 && page.iter().all(|change| change.revision > after));
        let Some(last) = page.last() else { break };
        after = last.revision;
        versions.extend(page.into_iter().map(|change| change.version));
    }
    assert_eq!(after, store.revision().unwrap());
    let wanted: Vec<_> = drafts.into_iter().map(|draft| draft.version).collect();
    assert_eq!(versions, wanted);
    assert!(store.changes(after, 7).unwrap().is_empty());
}

pub fn an_unknown_revision_is_refused(store: &dyn Store) {
    let revision = publish(store, &draft("hyperty/a", "1.0.0", "{}"));
    for after in [revision + 1, u64::MAX] {
        // Other nodes may have it already.
        let is_shared = store.followed().is_some();
        match store.changes(after, 1) {
            Err(StoreError::Behind { .. }) if is_shared => {}
            Err(StoreError::Compacted { .. }) if !is_shared => {}
            other => panic!("{other:?}"),
        }
    }
}

pub fn the_audit_log_records_every_action(store: &dyn Store) {
    let by = Identity::from_bytes([5; 32]);
    let whole = draft("hyperty/a", "1.0.0", "{}");
    store.publish(&whole, Some(by), NOW).unwrap();
    store.publish(&whole, Some(by), NOW).unwrap();
    store.publish(&draft("hyperty/a", "1.0.0", "{ }"), Some(by), NOW).unwrap();
    store.yank(&whole.key, &whole.version, true, None, UnixTime(NOW.0 + 1)).unwrap();
    store.yank(&whole.key, &whole.version, false, Some(by), NOW).unwrap();
    let entries = store.audit(10, None).unwrap();
    let found: Vec<_> =
        entries.iter().map(|it| (it.action, it.outcome.as_str(), it.identity)).collect();
    assert_eq!(
        found,
        [
            (Action::Unyank, "done", Some(by)),
            (Action::Yank, "done", None),
            (Action::Publish, "conflict", Some(by)),
            (Action::Publish, "done", Some(by)),
        ]
    );
    upload(store, b"garbage");
    let later = SystemClock.now().after(Duration::from_secs(1));
    store.collect(Duration::ZERO, Some(by), later).unwrap();
    let newest = &store.audit(1, None).unwrap()[0];
    assert_eq!((newest.action, newest.identity), (Action::Collect, Some(by)));
    let entries = store.audit(10, Some(newest.id)).unwrap();
    assert!(entries.iter().all(|it| it.key.as_ref() == Some(&whole.key)));
    assert!(entries.iter().all(|it| it.version.as_ref() == Some(&whole.version)));
    assert_eq!((entries[1].time, entries[3].time), (UnixTime(NOW.0 + 1), NOW));
    let first = store.audit(1, Some(newest.id)).unwrap();
    let rest = store.audit(9, Some(entries[0].id)).unwrap();
    assert_eq!((&first[..], &rest[..]), (&entries[..1], &entries[1..]));
}
