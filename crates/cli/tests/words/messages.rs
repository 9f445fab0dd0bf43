//! The headings of docs/troubleshooting.md quote messages of the product's sources.

use std::fs;

use super::prose::crate_of;
use super::{root, texts};
use crate::support::shared;

const PAGE: &str = "docs/troubleshooting.md";

/// The messages that the headings of a page quote, each in backticks.
fn quoted(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with("### "));
    let spans = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2));
    spans.map(|span| span.trim_matches(['…', ' ']).to_owned()).collect()
}

/// A source in which literals are as a user sees them: continued lines joined, `…` for
/// placeholders, and without backticks, which cannot be quoted in a heading.
fn shown(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| joined.push_str(part.trim_start()));
    without_placeholders(&joined.replace('`', ""))
}

fn without_placeholders(text: &str) -> String {
    let mut parts = text.split('{');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) if !name.contains('\n') => shown = shown + "…" + rest,
            _ => shown = shown + "{" + part,
        }
    }
    shown
}

/// The product's sources, as a user sees their literals.
fn sources() -> Vec<String> {
    let paths = texts().into_iter().filter(|path| crate_of(path).is_some());
    paths.filter_map(|path| fs::read_to_string(root().join(path)).ok()).map(|s| shown(&s)).collect()
}

#[test]
fn the_page_about_troubleshooting_quotes_real_messages() {
    let _permit = shared();
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let quoted = quoted(&page);
    assert!(quoted.len() > 40, "{PAGE}: found {} messages", quoted.len());
    let sources = sources();
    let is_missing =
        |message: &&String| !sources.iter().any(|source| source.contains(message.as_str()));
    let missing: Vec<&String> = quoted.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{PAGE} quotes messages that no source has: {missing:#?}");
}

#[test]
fn messages_are_found_in_headings_and_literals() {
    let page = "### `port … is taken …`, `gone`\ntext `no`\n## `no`\n";
    assert_eq!(quoted(page), ["port … is taken", "gone"]);
    let source = "format!(\"port `{port:?}` \\\n        is {taken} {\n}\")";
    assert_eq!(shown(source), "format!(\"port … is … {\n}\")");
}
