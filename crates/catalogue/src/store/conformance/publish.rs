use levada_core::{SecretKey, SystemRandom, UnixTime, sha256};

use super::support::{NOW, assert_is, draft, draft_with, names, package, publish, sign, upload};
use crate::model::{Draft, Key, Kind, Package, Version};
use crate::store::{MAX_PAGE, Outcome, Store, StoreError};

pub fn reads_back_what_was_published(store: &dyn Store) {
    let one = SecretKey::generate(&SystemRandom).unwrap();
    let two = SecretKey::generate(&SystemRandom).unwrap();
    let mut with = draft_with(store, "runtime/Rüntime x", "1.2.3-rc.1+b7", b"function () {}");
    sign(&mut with, &one);
    sign(&mut with, &two);
    let without = draft("service/echo", "0.1.0", "{ \"a\": 1.10,\n \"b\": null }");
    let by = Some(one.identity());
    assert!(matches!(store.publish(&with, by, NOW).unwrap(), Outcome::Created(1..)));
    publish(store, &without);
    for (draft, by) in [(&with, by), (&without, None)] {
        let found = store.get(&draft.key, &draft.version).unwrap().unwrap();
        assert_is(&found, draft, by);
        assert!(!found.yanked);
        assert_eq!(store.versions(&draft.key).unwrap().len(), 1);
    }
    let none = |key: &str, version: &str| {
        store.get(&key.parse().unwrap(), &version.parse().unwrap()).unwrap().is_none()
    };
    assert!(none("service/echo", "0.1.1") && none("service/Echo", "0.1.0"));
    assert!(none("runtime/echo", "0.1.0") && none("runtime/Rüntime x", "1.2.3-rc.1"));
}

pub fn a_version_is_created_once(store: &dyn Store) {
    let first = draft("hyperty/a", "1.0.0", "{}");
    let revision = publish(store, &first);
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let again = store.publish(&first, Some(key.identity()), UnixTime(NOW.0 + 9)).unwrap();
    assert_eq!(again, Outcome::Same);
    let other = draft("hyperty/a", "1.0.0", "{ }");
    assert_eq!(store.publish(&other, None, NOW).unwrap(), Outcome::Conflict);
    assert_eq!(store.revision().unwrap(), revision);
    let found = store.get(&first.key, &first.version).unwrap().unwrap();
    assert_is(&found, &first, None);
    assert_eq!(found.revision, revision);
}

pub fn any_difference_is_a_conflict(store: &dyn Store) {
    let key = SecretKey::generate(&SystemRandom).unwrap();
    let mut whole = draft_with(store, "hyperty/a", "1.0.0", b"code");
    let other = upload(store, b"edoc");
    sign(&mut whole, &key);
    publish(store, &whole);
    let changed = |change: &dyn Fn(&mut Draft)| {
        let mut draft = whole.clone();
        change(&mut draft);
        store.publish(&draft, None, NOW).unwrap()
    };
    let package = |change: fn(&mut Package)| {
        changed(&|draft: &mut Draft| draft.package.iter_mut().for_each(change))
    };
    assert_eq!(changed(&|_| {}), Outcome::Same);
    assert_eq!(changed(&|draft| draft.signatures.clear()), Outcome::Conflict);
    assert_eq!(changed(&|draft| draft.package = None), Outcome::Conflict);
    assert_eq!(package(|it| it.media_type = "text/plain".into()), Outcome::Conflict);
    assert_eq!(package(|it| it.description = b"{}".to_vec()), Outcome::Conflict);
    // The signatures would not verify with another package. The store reports a conflict in any
    // case.
    let unsigned = |draft: &mut Draft| {
        draft.signatures.clear();
        draft.package = Some(super::support::package(other, 4));
    };
    assert_eq!(changed(&unsigned), Outcome::Conflict);
}

pub fn a_draft_that_exceeds_a_limit_is_refused(store: &dyn Store) {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    for descriptor in ["", "[]", "{", "{} {}", &long, &deep] {
        let outcome = store.publish(&draft("hyperty/a", "1.0.0", descriptor), None, NOW);
        assert!(matches!(outcome, Err(StoreError::Draft(_))), "{outcome:?}");
    }
    assert_eq!(store.revision().unwrap(), 0);
    assert!(store.list(None, "", None, 10).unwrap().is_empty());
    assert!(store.audit(10, None).unwrap().is_empty());
}

pub fn a_batch_equals_single_calls(store: &dyn Store) {
    let other = draft("hyperty/b", "1.0.0", r#"{"a":2}"#);
    let drafts = [draft("hyperty/a", "1.0.0", "{}"), draft("hyperty/b", "1.0.0", "{}"), other];
    let outcomes = store.publish_all(&drafts, None, NOW).unwrap();
    let [Outcome::Created(first), Outcome::Created(second), Outcome::Conflict] = outcomes[..]
    else {
        panic!("{outcomes:?}");
    };
    assert!(first < second && second == store.revision().unwrap());
    assert_eq!(store.publish_all(&drafts[..2], None, NOW).unwrap(), [Outcome::Same; 2]);
    assert!(store.publish_all(&[], None, NOW).unwrap().is_empty());
    assert_eq!(store.changes(0, 10).unwrap().len(), 2);
    let missing = Draft { package: Some(package([7; 32], 1)), ..draft("hyperty/c", "1.0.0", "{}") };
    let outcome = store.publish_all(&[missing], None, NOW);
    assert!(matches!(outcome, Err(StoreError::NoSuchBlob(_))), "{outcome:?}");
}

pub fn one_refused_version_of_a_batch_stops_no_other(store: &dyn Store) {
    let mut drafts: Vec<Draft> =
        (0..40).map(|n| draft(&format!("hyperty/many-{n}"), "1.0.0", "{}")).collect();
    drafts[20] = draft("hyperty/many-10", "1.0.0", r#"{"other":1}"#);
    let outcomes = store.publish_all(&drafts, None, NOW).unwrap();
    for (n, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Created(revision) => {
                let found = store.get(&drafts[n].key, &drafts[n].version).unwrap().unwrap();
                assert_eq!(found.revision, *revision);
                assert_is(&found, &drafts[n], None);
            }
            // Which of the two is not said.
            Outcome::Conflict => assert!([10, 20].contains(&n)),
            Outcome::Same => panic!("the version {n} is new"),
        }
    }
    let refused = outcomes.iter().filter(|outcome| **outcome == Outcome::Conflict).count();
    assert_eq!((outcomes.len(), refused), (40, 1));
}

pub fn versions_ascend(store: &dyn Store) {
    let sorted =
        ["0.9.0", "1.0.0-alpha", "1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0", "1.9.0", "1.10.0"];
    for at in [3, 0, 6, 2, 5, 1, 4] {
        publish(store, &draft("hyperty/a", sorted[at], "{}"));
    }
    publish(store, &draft("hyperty/b", "3.0.0", "{}"));
    let found = store.versions(&"hyperty/a".parse().unwrap()).unwrap();
    assert!(found.iter().all(|it| it.descriptor.is_empty() && it.digest == sha256(&[b"{}"])));
    let found: Vec<String> = found.iter().map(|it| it.version.to_string()).collect();
    assert_eq!(found, sorted);
    assert!(store.versions(&"hyperty/c".parse().unwrap()).unwrap().is_empty());
}

pub fn a_yanked_version_stays_readable(store: &dyn Store) {
    let whole = draft("hyperty/a", "1.0.0", r#"{"a":1}"#);
    let created = publish(store, &whole);
    let yank = |yanked| store.yank(&whole.key, &whole.version, yanked, None, NOW).unwrap();
    let found = || store.get(&whole.key, &whole.version).unwrap().unwrap();
    assert_eq!(yank(false), Outcome::Same);
    let Outcome::Created(gone) = yank(true) else { panic!("it was there") };
    assert_eq!(yank(true), Outcome::Same);
    assert_is(&found(), &whole, None);
    assert!(found().yanked && gone > created && found().revision == gone);
    assert_eq!(store.publish(&whole, None, NOW).unwrap(), Outcome::Same, "and stays yanked");
    assert!(found().yanked && store.versions(&whole.key).unwrap()[0].yanked);
    assert_eq!(names(&store.list(None, "", None, 10).unwrap()), ["hyperty/a"]);
    let Outcome::Created(back) = yank(false) else { panic!("it was yanked") };
    assert!(!found().yanked && back > gone && found().revision == back);
    let unknown = [("hyperty/a", "1.0.1"), ("hyperty/b", "1.0.0")];
    for (key, version) in unknown {
        let outcome = store.yank(&key.parse().unwrap(), &version.parse().unwrap(), true, None, NOW);
        assert!(matches!(outcome, Err(StoreError::NoSuchVersion { .. })), "{outcome:?}");
    }
}

pub fn objects_are_listed_in_order_and_pages(store: &dyn Store) {
    let keys = [
        "dataschema/b",
        "hyperty/A",
        "hyperty/a",
        "hyperty/ab",
        "hyperty/ab%",
        "hyperty/ab_c",
        "hyperty/abc",
        "hyperty/b",
        "hyperty/ä",
        "idp-proxy/ab",
        "service/ab",
    ];
    for key in keys.iter().rev() {
        publish(store, &draft(key, "1.0.0", "{}"));
        publish(store, &draft(key, "1.1.0", "{}"));
    }
    let list = |kind, prefix: &str| names(&store.list(kind, prefix, None, 100).unwrap());
    assert_eq!(list(None, ""), keys);
    assert_eq!(list(Some(Kind::Hyperty), ""), keys[1..9]);
    assert_eq!(list(Some(Kind::Hyperty), "ab"), keys[3..7]);
    assert_eq!(list(Some(Kind::Hyperty), "ab%"), ["hyperty/ab%"]);
    assert_eq!(list(None, "ab_"), ["hyperty/ab_c"]);
    assert_eq!(list(None, "ab").len(), 6);
    assert!(list(Some(Kind::Runtime), "").is_empty() && list(None, &"a".repeat(300)).is_empty());
    for limit in 1..=keys.len() {
        let mut all = Vec::new();
        while let page @ [_, ..] =
            &store.list(None, "", all.last(), u32::try_from(limit).unwrap()).unwrap()[..]
        {
            assert!(page.len() <= limit);
            all.extend_from_slice(page);
        }
        assert_eq!(names(&all), keys);
    }
    assert!(store.list(None, "", None, 0).unwrap().is_empty());
    assert!(store.list(None, "", None, u32::MAX).unwrap().len() <= MAX_PAGE as usize);
    // Behind a key that does not exist, and behind one with another prefix.
    let behind =
        |key: &str| names(&store.list(None, "ab", Some(&key.parse().unwrap()), 2).unwrap());
    assert_eq!(behind("hyperty/ab_a"), ["hyperty/ab_c", "hyperty/abc"]);
    assert_eq!(behind("hyperty/a"), ["hyperty/ab", "hyperty/ab%"]);
    assert_eq!(behind("hyperty/b"), ["idp-proxy/ab", "service/ab"]);
}

pub fn each_follows_the_order_of_publication(store: &dyn Store) {
    let all: Vec<Draft> = (0..200)
        .map(|n| {
            let key = format!("{}/o{}", Kind::ALL[n % Kind::ALL.len()].as_str(), 7 * n % 40);
            draft(&key, &format!("1.{n}.0"), &format!("{{\"n\":{n}}}"))
        })
        .collect();
    store.publish_all(&all, None, NOW).unwrap();
    // A version that is yanked and restored keeps its position.
    store.yank(&all[3].key, &all[3].version, true, None, NOW).unwrap();
    store.yank(&all[4].key, &all[4].version, true, None, NOW).unwrap();
    store.yank(&all[3].key, &all[3].version, false, None, NOW).unwrap();
    let mut found: Vec<(Key, Version)> = Vec::new();
    store
        .each(&mut |published| {
            assert_is(&published, &all[found.len()], None);
            assert_eq!(published.yanked, found.len() == 4);
            found.push((published.key, published.version));
        })
        .unwrap();
    assert_eq!(found.len(), all.len());
}
