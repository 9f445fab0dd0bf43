//! Splits versions and queries into words for the full-text index.
//!
//! A word is a run of letters and digits in lower case. FTS5 gets words, not text. Its tokenizer
//! `ascii` splits at ASCII separators only, of which these words have none, so this module alone
//! defines the words of versions and queries.
//!
//! Two private-use characters are prefixes of special words. A query cannot contain such a word,
//! because they are not letters.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::model::{Key, Kind};
use crate::store::{MAX_QUERY, MAX_WORDS, StoreError};

/// Longer words are truncated, in versions and queries: they are code rather than language; in
/// characters.
const MAX_WORD: usize = 64;
/// The prefix of the word for the kind of an object.
const KIND: char = '\u{e000}';
/// The prefix of the words of an object's name.
const NAMED: char = '\u{e001}';

/// The words of a version, each once, separated by spaces. A descriptor that is not JSON has no
/// words.
pub(super) fn of_version(key: &Key, descriptor: &[u8]) -> String {
    let mut words = BTreeSet::from([kind_word(key.kind)]);
    let mut named = BTreeSet::new();
    add(key.name.as_str(), &mut named);
    words.extend(named.iter().map(|word| format!("{NAMED}{word}")));
    words.append(&mut named);
    add(key.kind.as_str(), &mut words);
    if let Ok(value) = serde_json::from_slice(descriptor) {
        add_strings(&value, &mut words);
    }
    words.into_iter().collect::<Vec<_>>().join(" ")
}

/// The recursion is bounded by the depth limit of serde_json.
fn add_strings(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => add(text, words),
        Value::Array(items) => items.iter().for_each(|item| add_strings(item, words)),
        Value::Object(items) => items.values().for_each(|item| add_strings(item, words)),
        _ => {}
    }
}

fn add(text: &str, words: &mut BTreeSet<String>) {
    for run in runs(text) {
        words.extend(fold(run));
        words.extend(parts(run).into_iter().filter_map(fold));
    }
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty())
}

fn fold(run: &str) -> Option<String> {
    let lower = run.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric());
    let word: String = lower.take(MAX_WORD).collect();
    (!word.is_empty()).then_some(word)
}

/// Splits `HelloWorld2` into `Hello`, `World`, `2`, and `HTTPServer` into `HTTP`, `Server`. Empty
/// if there is one part only.
fn parts(run: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = run.char_indices().take(MAX_WORD + 1).collect();
    if chars.len() > MAX_WORD {
        return Vec::new();
    }
    let mut parts = Vec::new();
    let mut rest = 0;
    for (at, (start, c)) in chars.iter().enumerate().skip(1) {
        let before = chars[at - 1].1;
        let next_is_lower = chars.get(at + 1).is_some_and(|(_, next)| next.is_lowercase());
        let begins = (c.is_uppercase() && (before.is_lowercase() || next_is_lower))
            || c.is_numeric() != before.is_numeric();
        if begins {
            parts.push(&run[rest..*start]);
            rest = *start;
        }
    }
    if rest > 0 {
        parts.push(&run[rest..]);
    }
    parts
}

fn kind_word(kind: Kind) -> String {
    let letters = kind.as_str().chars().filter(|c| c.is_alphanumeric());
    std::iter::once(KIND).chain(letters).collect()
}

/// The words of a query.
pub(super) struct Query {
    words: Vec<String>,
    kind: Option<Kind>,
}

impl Query {
    /// Parses a query; `None` if it has no word.
    pub fn parse(text: &str, kind: Option<Kind>) -> Result<Option<Self>, StoreError> {
        if text.len() > MAX_QUERY {
            return Err(StoreError::Query);
        }
        let words: Vec<String> = runs(text).filter_map(fold).collect();
        if words.len() > MAX_WORDS {
            return Err(StoreError::Query);
        }
        Ok((!words.is_empty()).then_some(Self { words, kind }))
    }

    /// The FTS5 expression for objects with all words in the name.
    pub fn named(&self) -> String {
        self.all(Some(NAMED))
    }

    /// The FTS5 expression for the other hits.
    pub fn elsewhere(&self) -> String {
        format!("({}) NOT ({})", self.all(None), self.all(Some(NAMED)))
    }

    fn all(&self, mark: Option<char>) -> String {
        let mark = mark.map(String::from).unwrap_or_default();
        let kind = self.kind.map(|kind| format!("\"{}\"", kind_word(kind)));
        let words = self.words.iter().map(|word| format!("\"{mark}{word}\""));
        let mut all = kind.into_iter().chain(words).collect::<Vec<_>>().join(" AND ");
        // A single letter is not used as a prefix, because it would match too much.
        if self.words.last().is_some_and(|last| last.chars().nth(1).is_some()) {
            all.push_str(" *");
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = BTreeSet::new();
        add(text, &mut words);
        words.into_iter().collect()
    }

    #[test]
    fn splits_words_into_their_parts() {
        assert_eq!(words("HelloWorld2 of-ÖÄ"), ["2", "hello", "helloworld2", "of", "world", "öä"]);
        assert_eq!(words("HTTPServer"), ["http", "httpserver", "server"]);
        assert_eq!(words("plain"), ["plain"]);
        assert_eq!(words("\u{e000}kind \"*^:()"), ["kind"]);
        assert_eq!(words(&"x".repeat(1000)), ["x".repeat(64)]);
        assert_eq!(words(&"aB".repeat(1000)), ["ab".repeat(32)]);
    }

    #[test]
    fn a_version_has_the_words_of_its_strings() {
        let key = "idp-proxy/Alice".parse().unwrap();
        let text =
            of_version(&key, br#"{"key": ["value", {"a": "a\u0041b"}], "n": 17, "t": true}"#);
        let all: Vec<&str> = text.split(' ').collect();
        assert_eq!(
            all,
            [
                "a",
                "aab",
                "ab",
                "alice",
                "idp",
                "proxy",
                "value",
                "\u{e000}idpproxy",
                "\u{e001}alice"
            ]
        );
        assert!(of_version(&key, b"no JSON").contains("alice"));
    }

    #[test]
    fn a_query_has_words_only() {
        let query = |text: &str| {
            Query::parse(text, Some(Kind::Runtime)).map(|query| query.unwrap().all(None))
        };
        assert_eq!(query("Big  b").unwrap(), "\"\u{e000}runtime\" AND \"big\" AND \"b\"");
        assert_eq!(
            query("a OR name:b*\" NOT (x").unwrap(),
            "\"\u{e000}runtime\" AND \"a\" AND \"or\" AND \"name\" AND \"b\" AND \"not\" AND \"x\""
        );
        assert!(query("beginning").unwrap().ends_with("\"beginning\" *"));
        assert!(Query::parse(" -* ", None).unwrap().is_none());
        assert!(query(&"x ".repeat(MAX_WORDS)).is_ok());
        assert!(matches!(query(&"x ".repeat(MAX_WORDS + 1)), Err(StoreError::Query)));
        assert!(matches!(query(&"x".repeat(1025)), Err(StoreError::Query)));
    }

    /// FTS5 must accept every query, and find the text that it was made from.
    #[test]
    fn any_text_is_a_query_that_finds_a_version_with_that_text() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        let schema = include_str!("schema/catalogue-1.sql");
        let (_, search) = schema.split_at(schema.find("CREATE VIRTUAL TABLE search").unwrap());
        database.execute_batch(search).unwrap();
        // The database is not used after a panic.
        let database = AssertUnwindSafe(database);
        bolero::check!().with_type::<String>().for_each(|text| {
            let Ok(Some(query)) = Query::parse(text, None) else { return };
            let key = "runtime/x".parse().unwrap();
            let descriptor = serde_json::json!({ "text": text }).to_string();
            let words = of_version(&key, descriptor.as_bytes());
            database.execute("DELETE FROM search WHERE rowid = 1", []).unwrap();
            database.execute("INSERT INTO search (rowid, words) VALUES (1, ?1)", [words]).unwrap();
            let mut find = database.prepare("SELECT 1 FROM search WHERE search MATCH ?1").unwrap();
            let found = [query.named(), query.elsewhere()].map(|sql| find.exists([sql]).unwrap());
            assert!(found[0] != found[1], "{text:?}");
        });
    }
}
