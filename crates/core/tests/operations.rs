//! `docs/protocol.md` has the operations of `proto/levada.proto` and the versions of this build.

#![allow(clippy::unwrap_used)] // Helpers of tests, as in tests.

use std::collections::BTreeSet;

use levada_core::WIRE_VERSIONS;

const PROTOCOL: &str = include_str!("../../../docs/protocol.md");
const MESSAGES: &str = include_str!("../../../proto/levada.proto");

/// The operations of the table: the first name of each row, in lower case.
fn documented() -> BTreeSet<String> {
    let (_, section) = PROTOCOL.split_once("\n## Operations and answers\n").unwrap();
    let mut tables = section.split("\n\n");
    let table = tables.find(|part| part.starts_with("| operation |")).unwrap();
    table.lines().skip(2).map(|row| row.split('`').nth(1).unwrap().to_lowercase()).collect()
}

/// The fields of `Operation`, without the underlines between words.
fn declared() -> BTreeSet<String> {
    let (_, fields) = MESSAGES.split_once("\n  oneof operation {\n").unwrap();
    let fields = fields.split("\n  }\n").next().unwrap().lines().map(str::trim);
    let fields = fields.filter(|line| !line.starts_with("//"));
    fields.map(|field| field.split(' ').nth(1).unwrap().replace('_', "")).collect()
}

#[test]
fn every_operation_is_documented_and_every_documented_operation_exists() {
    assert_eq!(documented(), declared());
}

#[test]
fn the_page_describes_all_versions() {
    let first = WIRE_VERSIONS.start();
    let last = WIRE_VERSIONS.end();
    let text = format!("This page describes versions {first} to {last};");
    assert!(PROTOCOL.contains(&text), "docs/protocol.md: {text}");
}
