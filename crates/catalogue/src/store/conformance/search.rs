use super::support::{NOW, draft, publish};
use crate::model::{Draft, Key, Kind};
use crate::store::{Hit, MAX_PAGE, MAX_QUERY, MAX_WORDS, Outcome, SearchCursor, Store, StoreError};

fn found(store: &dyn Store, query: &str, kind: Option<Kind>) -> Vec<String> {
    let hits = store.search(query, kind, None, 100).unwrap();
    hits.iter().map(|hit| hit.key.to_string()).collect()
}

pub fn a_hit_has_all_words(store: &dyn Store) {
    publish(store, &draft("runtime/HelloWorldObserver", "1.0.0", r#"{"d":"Watches the sky"}"#));
    publish(store, &draft("hyperty/chat", "1.0.0", r#"{"a":["Sky",{"b":"Straße 12"}],"sea":1}"#));
    let all = |query: &str| found(store, query, None);
    assert_eq!(all("sky"), ["runtime/HelloWorldObserver", "hyperty/chat"]);
    assert_eq!(all("SKY straße"), ["hyperty/chat"]);
    assert_eq!(all("hello sky"), ["runtime/HelloWorldObserver"]);
    assert_eq!(all("helloworldobserver"), ["runtime/HelloWorldObserver"]);
    assert_eq!(all("sky observ"), ["runtime/HelloWorldObserver"], "the last word may be a prefix");
    assert!(all("observ sky").is_empty(), "another word may not");
    assert_eq!(all("hyperty"), ["hyperty/chat"], "a kind is a word");
    assert_eq!(all("12"), ["hyperty/chat"]);
    assert!(all("sea").is_empty(), "a member's name is no string of it");
    assert!(all("").is_empty() && all(" -- ").is_empty() && all("sky moon").is_empty());
    assert_eq!(found(store, "sky", Some(Kind::Hyperty)), ["hyperty/chat"]);
    assert!(found(store, "sky", Some(Kind::IdpProxy)).is_empty());
}

pub fn search_uses_the_newest_version_that_is_not_yanked(store: &dyn Store) {
    let versions = [("1.0.0", "red"), ("2.0.0-rc.1", "green"), ("1.5.0", "blue")];
    for (version, word) in versions {
        publish(store, &draft("hyperty/a", version, &format!("{{\"w\":\"{word}\"}}")));
    }
    let key: Key = "hyperty/a".parse().unwrap();
    let shown = || {
        let of = |word| store.search(word, None, None, 5).unwrap();
        let words = ["red", "green", "blue"].into_iter().flat_map(of);
        words.map(|hit: Hit| hit.version.to_string()).collect::<Vec<_>>()
    };
    let yank = |version: &str, yanked| {
        store.yank(&key, &version.parse().unwrap(), yanked, None, NOW).unwrap();
    };
    assert_eq!(shown(), ["1.5.0"]);
    yank("1.0.0", true);
    assert_eq!(shown(), ["1.5.0"]);
    yank("1.5.0", true);
    assert_eq!(shown(), ["2.0.0-rc.1"], "a pre-release, if there is nothing else");
    yank("2.0.0-rc.1", true);
    assert!(shown().is_empty() && store.search("a", None, None, 5).unwrap().is_empty());
    yank("1.0.0", false);
    assert_eq!(shown(), ["1.0.0"]);
    yank("2.0.0-rc.1", false);
    assert_eq!(shown(), ["1.0.0"]);
    // Of versions that differ in build metadata only, the last published is the newest.
    for (version, word) in [("1.0.0+2", "red"), ("1.0.0+10", "green"), ("1.0.0+1", "blue")] {
        publish(store, &draft("hyperty/a", version, &format!("{{\"w\":\"{word}\"}}")));
        assert_eq!(shown(), [version]);
    }
    let versions = store.versions(&key).unwrap();
    let versions: Vec<_> = versions.iter().map(|one| one.version.to_string()).collect();
    assert_eq!(versions[..4], ["1.0.0", "1.0.0+2", "1.0.0+10", "1.0.0+1"]);
}

pub fn a_published_batch_is_found(store: &dyn Store) {
    let one = |key: &str, version: &str, word: &str| {
        draft(key, version, &format!("{{\"w\":\"{word}\"}}"))
    };
    publish(store, &one("hyperty/old", "1.0.0", "before"));
    let batch = [
        one("hyperty/old", "3.0.0", "third"),
        one("runtime/new", "1.0.0", "first"),
        one("runtime/new", "3.0.0", "third"),
        one("hyperty/old", "2.0.0", "second"),
        one("runtime/new", "3.0.0", "conflict"),
        one("runtime/new", "2.0.0", "second"),
    ];
    let outcomes = store.publish_all(&batch, None, NOW).unwrap();
    assert_eq!(outcomes.iter().filter(|it| matches!(it, Outcome::Conflict)).count(), 1);
    assert_eq!(found(store, "third", None), ["hyperty/old", "runtime/new"]);
    for word in ["before", "first", "second", "conflict"] {
        assert!(found(store, word, None).is_empty(), "{word}");
    }
    let mut findings = Vec::new();
    store.verify(&mut |finding| findings.push(finding)).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

pub fn hits_in_names_come_first_on_all_pages(store: &dyn Store) {
    let drafts: Vec<Draft> = (0..60)
        .map(|n| match n % 3 {
            0 => draft(&format!("runtime/river {n}"), "1.0.0", "{}"),
            1 => draft(&format!("hyperty/h{n}"), "1.0.0", r#"{"d":"by the river"}"#),
            _ => draft(&format!("service/s{n}"), "1.0.0", r#"{"d":"by the sea"}"#),
        })
        .collect();
    store.publish_all(&drafts, None, NOW).unwrap();
    let all = store.search("river", None, None, 100).unwrap();
    assert_eq!(all.len(), 40);
    assert!(all[..20].iter().all(|hit| hit.key.kind == Kind::Runtime));
    for limit in [1, 7, 20, 39, 40] {
        let mut found: Vec<Hit> = Vec::new();
        loop {
            let after = found.last().map(|hit| hit.cursor.clone());
            let page = store.search("river", None, after.as_ref(), limit).unwrap();
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, all);
    }
    assert!(store.search("river", None, None, 0).unwrap().is_empty());
    assert!(store.search("river", None, None, u32::MAX).unwrap().len() <= MAX_PAGE as usize);
}

pub fn a_query_has_no_syntax(store: &dyn Store) {
    publish(store, &draft("hyperty/a", "1.0.0", r#"{"d":"one OR two"}"#));
    for text in [
        "\"",
        "\"one",
        "one*",
        "^one",
        "one AND",
        "NEAR(one two)",
        "words:one",
        "(one",
        "one + two",
        "one; DROP TABLE search",
        "'",
        "\0",
        "\u{e000}hyperty",
        "\u{fffd}",
        "- one",
        "{one} : two",
    ] {
        store.search(text, None, None, 5).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
    assert_eq!(found(store, "one*", None).len(), 1);
    assert!(found(store, "zero OR one", None).is_empty(), "OR is a word");
    assert!(found(store, "one NOT two", None).is_empty(), "and so is NOT");
    let long = ["x".repeat(MAX_QUERY + 1), "x ".repeat(MAX_WORDS + 1)];
    let long = long.map(|text| store.search(&text, None, None, 5));
    assert!(long.iter().all(|outcome| matches!(outcome, Err(StoreError::Query))));
    for text in ["", "n", "x1", "n-1", "n1x", "ü1", "n99999999999999999999"] {
        let outcome = store.search("one", None, Some(&SearchCursor(text.into())), 5);
        assert!(matches!(outcome, Err(StoreError::Cursor)), "{text}: {outcome:?}");
    }
}
