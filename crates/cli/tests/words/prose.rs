//! The prose of comments in product code: the plain forms of CONTRIBUTING.md, counted for each
//! crate.
//!
//! Neither count may rise above [`RECORD`]. Lower the record when a crate was cleaned.

use std::collections::BTreeMap;
use std::path::Path;

use super::{root, texts};
use crate::support::shared;

/// Phrases that have a plain form, at word boundaries in any case.
const PHRASES: &[&str] = &[
    "has come",
    "have come",
    "came",
    "comes",
    "is there",
    "are there",
    "no more",
    "any more",
    "of its own",
    "by itself",
    "anew",
    "hence",
    "beside",
    "meanwhile",
    "that of",
    "those of",
    "say",
    "says",
    "said",
    "goes",
    "the most",
    "the least",
    "so many",
    "so much",
    "for so long",
];
/// `has not` as a full verb; with one of [`AFTER_HAS_NOT`] behind it, it is a tense.
const HAS_NOT: [&str; 2] = ["has not", "have not"];
const AFTER_HAS_NOT: &[&str] = &[
    "been", "yet", "changed", "come", "answered", "sent", "received", "done", "finished", "gone",
    "proved",
];
/// First words of a doc comment that make it a riddle: it begins with a noun or a verb.
const OPENERS: &[&str] =
    &["what", "where", "who", "why", "when", "whether", "how", "which", "that"];

/// The most that a crate may have.
struct Record {
    name: &'static str,
    /// Phrases in 10,000 words of comments.
    phrases: usize,
    /// Doc comments with one of [`OPENERS`], in 1,000.
    openers: usize,
}

const fn record(name: &'static str, phrases: usize, openers: usize) -> Record {
    Record { name, phrases, openers }
}

const RECORD: &[Record] = &[
    record("capability", 17, 117),
    record("catalogue", 29, 121),
    record("channel", 46, 134),
    record("cli", 34, 71),
    record("client", 41, 72),
    record("config", 12, 60),
    record("contexts", 55, 156),
    record("core", 6, 57),
    record("database", 27, 79),
    record("discovery", 8, 113),
    record("home", 43, 95),
    record("monitor", 80, 143),
    record("node", 25, 62),
    record("preload", 82, 102),
    record("ring", 94, 103),
    record("service", 24, 100),
    record("services", 44, 119),
    record("session", 32, 87),
    record("swarm", 145, 146),
    record("transport", 50, 92),
];

/// A record that is higher than the crate by more than this must be lowered.
const SLACK: usize = 3;

#[derive(Default)]
struct Counts {
    words: usize,
    phrases: usize,
    docs: usize,
    openers: usize,
}

impl Counts {
    fn phrases_in_10_000(&self) -> usize {
        (self.phrases * 10_000).div_ceil(self.words.max(1))
    }

    fn openers_in_1_000(&self) -> usize {
        (self.openers * 1_000).div_ceil(self.docs.max(1))
    }

    fn add_line(&mut self, text: &str) {
        self.words += text.split_whitespace().count();
        let plain = without_code(text).to_lowercase();
        self.phrases += PHRASES.iter().map(|phrase| places(&plain, phrase).count()).sum::<usize>();
        for phrase in HAS_NOT {
            self.phrases += places(&plain, phrase).filter(|end| !is_tense(&plain[*end..])).count();
        }
    }

    fn add_doc(&mut self, first: &str) {
        self.docs += 1;
        let word: String = first.chars().take_while(|c| c.is_alphabetic() || *c == '\'').collect();
        self.openers += usize::from(OPENERS.contains(&word.to_lowercase().as_str()));
    }
}

fn is_tense(rest: &str) -> bool {
    let next = rest.split_whitespace().next().unwrap_or_default();
    AFTER_HAS_NOT.iter().any(|word| next.starts_with(word))
}

/// The text with `X` in the place of each code span.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 0 { part } else { "X" }).collect()
}

/// The ends of the places where `text` has the phrase, at word boundaries.
fn places<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase).filter_map(move |(at, _)| {
        let end = at + phrase.len();
        let is_bounded =
            !is_word(text[..at].chars().next_back()) && !is_word(text[end..].chars().next());
        is_bounded.then_some(end)
    })
}

/// Product code of a crate: neither tests nor helpers of tests.
pub(super) fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_test = file.split('/').any(|part| {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        ["tests", "testing", "loom_tests", "benches", "examples"].contains(&stem)
    });
    (file.ends_with(".rs") && !is_test).then_some(name)
}

fn counts() -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for path in texts() {
        let Some(name) = crate_of(&path) else { continue };
        let counts = all.entry(name.to_owned()).or_default();
        count_file(&root().join(&path), counts);
    }
    all
}

fn count_file(path: &Path, counts: &mut Counts) {
    let source = std::fs::read_to_string(path).unwrap();
    let mut kind_before = "";
    for line in source.lines() {
        let line = line.trim_start();
        let kind = ["///", "//!", "//"].into_iter().find(|kind| line.starts_with(kind));
        let kind = kind.unwrap_or_default();
        if !kind.is_empty() {
            let text = line[kind.len()..].trim();
            counts.add_line(text);
            if kind != "//" && kind != kind_before {
                counts.add_doc(text);
            }
        }
        kind_before = kind;
    }
}

#[test]
fn the_prose_of_no_crate_gets_worse() {
    let _permit = shared();
    let mut wrong = Vec::new();
    let counts = counts();
    for (name, counts) in &counts {
        let phrases = counts.phrases_in_10_000();
        let openers = counts.openers_in_1_000();
        let found = RECORD.iter().find(|record| record.name == name);
        let is_right = found.is_some_and(|record| {
            (phrases..=phrases + SLACK).contains(&record.phrases)
                && (openers..=openers + SLACK).contains(&record.openers)
        });
        if !is_right {
            wrong.push(format!("    record(\"{name}\", {phrases}, {openers}),"));
        }
    }
    assert!(
        wrong.is_empty(),
        "the comments of these crates have other counts than the record; rewrite new ones in the \
         plain form (CONTRIBUTING.md, \"Names and prose\"), or lower the record:\n{}",
        wrong.join("\n")
    );
    assert_eq!(RECORD.len(), counts.len(), "every record is of a crate");
}

#[test]
fn phrases_are_found_at_word_boundaries_outside_of_code() {
    let mut counts = Counts::default();
    counts.add_line("The length has come beside `those of` that office; it has not been sent.");
    assert_eq!(counts.phrases, 2);
    counts.add_line("A peer has not a key. Hence, those of others.");
    assert_eq!(counts.phrases, 5);
    counts.add_doc("Whether it is open.");
    counts.add_doc("The number of peers.");
    assert_eq!((counts.docs, counts.openers), (2, 1));
}
