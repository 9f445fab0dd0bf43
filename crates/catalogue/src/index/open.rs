//! Which objects are shown to unauthenticated clients.

use std::str::FromStr;

use thiserror::Error;

use crate::model::{Key, Kind};

/// The text is not a pattern.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is not a pattern: use `*`, `TYPE/*`, `TYPE/PREFIX*` or `TYPE/NAME`")]
pub struct PatternError(String);

/// Matches objects of one kind, or of all kinds, by their name or its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    kind: Option<Kind>,
    text: String,
    /// `text` is the whole name, not a prefix.
    is_exact: bool,
}

impl Pattern {
    /// Whether the pattern matches `key`.
    pub fn matches(&self, key: &Key) -> bool {
        let name = key.name.as_str();
        let fits = if self.is_exact { name == self.text } else { name.starts_with(&self.text) };
        fits && self.kind.is_none_or(|kind| kind == key.kind)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let error = || PatternError(text.chars().take(64).collect());
        if text == "*" {
            return Ok(Self { kind: None, text: String::new(), is_exact: false });
        }
        let (kind, name) = text.split_once('/').ok_or_else(error)?;
        let kind = if kind == "*" { None } else { Some(kind.parse().map_err(|_| error())?) };
        if name.is_empty() || name.contains('/') {
            return Err(error());
        }
        Ok(match name.strip_suffix('*') {
            Some(prefix) => Self { kind, text: prefix.to_owned(), is_exact: false },
            None => Self { kind, text: name.to_owned(), is_exact: true },
        })
    }
}

/// Which objects are shown; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open(Option<Vec<Pattern>>);

impl Open {
    /// Only the objects that match one of `patterns`.
    pub fn only(patterns: Vec<Pattern>) -> Self {
        Self(Some(patterns))
    }

    /// Whether the object is shown.
    pub fn shows(&self, key: &Key) -> bool {
        match &self.0 {
            Some(patterns) => patterns.iter().any(|pattern| pattern.matches(key)),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_by_kind_and_name() {
        let key = |text: &str| text.parse::<Key>().unwrap();
        for (pattern, yes, no) in [
            ("hyperty/*", "hyperty/a", "runtime/a"),
            ("hyperty/a*", "hyperty/ab", "hyperty/ba"),
            ("hyperty/a", "hyperty/a", "hyperty/ab"),
            ("*/a*", "runtime/a", "runtime/b"),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            assert!(pattern.matches(&key(yes)) && !pattern.matches(&key(no)), "{pattern:?}");
        }
        assert!("*".parse::<Pattern>().unwrap().matches(&key("service/x")));
        for text in ["", "hyperty", "hyperty/", "x/*", "hyperty/a/b"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
        assert!(Open::default().shows(&key("runtime/x")));
        assert!(!Open::only(Vec::new()).shows(&key("runtime/x")));
    }
}
