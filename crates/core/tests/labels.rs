//! The table of labels in `docs/protocol.md` equals `levada_core::label`.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests, as in tests.

use std::collections::BTreeSet;

use levada_core::label;

const PROTOCOL: &str = include_str!("../../../docs/protocol.md");
const SOURCE: &str = include_str!("../src/label.rs");

/// The labels of the table: the text between backticks in the first cell of each row.
fn documented() -> Vec<&'static str> {
    let (_, section) = PROTOCOL.split_once("\n## Labels\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cell = row.split('|').nth(1).unwrap().trim();
        let label = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        label.unwrap_or_else(|| panic!("no label between backticks in: {row}"))
    })
    .collect()
}

/// The values of the constants in the module's source, to find any that `ALL` omits.
fn declared() -> BTreeSet<&'static str> {
    let constants = SOURCE.lines().filter(|line| line.contains(": &str = "));
    constants.map(|line| line.split('"').nth(1).unwrap()).collect()
}

#[test]
fn every_label_is_documented_and_every_documented_label_exists() {
    let documented = documented();
    let all: BTreeSet<_> = label::ALL.iter().copied().collect();
    assert_eq!(documented.iter().copied().collect::<BTreeSet<_>>(), all);
    assert_eq!(documented.len(), all.len(), "a label has two rows");
}

#[test]
fn all_contains_every_label_once() {
    let all: BTreeSet<_> = label::ALL.iter().copied().collect();
    assert_eq!(all.len(), label::ALL.len(), "two purposes share a label");
    assert_eq!(all, declared());
}
