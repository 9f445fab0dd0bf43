//! Which objects everybody may see.

use std::str::FromStr;

use thiserror::Error;

use crate::model::{Key, Kind};

/// Not a pattern.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is no pattern: use `*`, `TYPE/*`, `TYPE/PREFIX*` or `TYPE/NAME`")]
pub struct PatternError(String);

/// Objects of one kind, or of all, whose name is or begins with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    kind: Option<Kind>,
    text: String,
    whole: bool,
}

impl Pattern {
    /// Whether it is meant.
    pub fn matches(&self, key: &Key) -> bool {
        let name = key.name.as_str();
        let fits = if self.whole { name == self.text } else { name.starts_with(&self.text) };
        fits && self.kind.is_none_or(|kind| kind == key.kind)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let error = || PatternError(text.chars().take(64).collect());
        if text == "*" {
            return Ok(Self { kind: None, text: String::new(), whole: false });
        }
        let (kind, name) = text.split_once('/').ok_or_else(error)?;
        let kind = if kind == "*" { None } else { Some(kind.parse().map_err(|_| error())?) };
        if name.is_empty() || name.contains('/') {
            return Err(error());
        }
        Ok(match name.strip_suffix('*') {
            Some(prefix) => Self { kind, text: prefix.to_owned(), whole: false },
            None => Self { kind, text: name.to_owned(), whole: true },
        })
    }
}

/// What everybody may see: by default everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open(Option<Vec<Pattern>>);

impl Open {
    /// What one of `patterns` means, and nothing else.
    pub fn only(patterns: Vec<Pattern>) -> Self {
        Self(Some(patterns))
    }

    /// Whether everybody may see it.
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
    fn patterns_mean_what_they_say() {
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
