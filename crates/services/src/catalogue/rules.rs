//! Rights to objects: rules by kind and by name or prefix of a name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use levada_catalogue::model::{Key, Kind, MAX_NAME};
use thiserror::Error;

/// Maximum number of rules of a session, and of a definition.
pub const MAX_RULES: usize = 64;

/// A right to a class of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read, list, search and watch descriptors, and fetch packages.
    Read,
    /// Publish.
    Write,
    /// Yank versions, and restore them.
    Yank,
    /// Read the audit log, verify, and collect garbage.
    Admin,
}

impl Right {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Yank, Self::Admin];

    /// Its name in rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Yank => "yank",
            Self::Admin => "admin",
        }
    }
}

/// A text is not a rule.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "a rule is `read`, `write` or `yank`, a space, and TYPE/NAME, where TYPE may be `*`, and NAME may end with `*`; or `admin */*`"
)]
pub struct RuleError;

/// One right to some objects: `write hyperty/acme.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    right: Right,
    /// All kinds if `None`.
    kind: Option<Kind>,
    name: String,
    /// Whether `name` is a prefix.
    is_prefix: bool,
}

impl Rule {
    /// `right` to all objects.
    pub const fn all(right: Right) -> Self {
        Self { right, kind: None, name: String::new(), is_prefix: true }
    }

    fn matches(&self, key: &Key) -> bool {
        let name = key.name.as_str();
        let named = if self.is_prefix { name.starts_with(&self.name) } else { name == self.name };
        named && self.kind.is_none_or(|kind| kind == key.kind)
    }

    /// Whether this rule grants everything that `other` grants.
    fn covers(&self, other: &Self) -> bool {
        let named = if self.is_prefix {
            other.name.starts_with(&self.name)
        } else {
            !other.is_prefix && other.name == self.name
        };
        self.right == other.right && named && (self.kind.is_none() || self.kind == other.kind)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (right, object) = text.split_once(' ').ok_or(RuleError)?;
        let right = Right::ALL.into_iter().find(|one| one.as_str() == right).ok_or(RuleError)?;
        let (kind, name) = object.split_once('/').ok_or(RuleError)?;
        let kind = match kind {
            "*" => None,
            kind => Some(kind.parse().map_err(|_| RuleError)?),
        };
        let (name, is_prefix) = match name.strip_suffix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let forbidden = |c: char| c == '/' || c.is_control();
        if name.len() > MAX_NAME || name.contains(forbidden) || (name.is_empty() && !is_prefix) {
            return Err(RuleError);
        }
        let rule = Self { right, kind, name: name.to_owned(), is_prefix };
        // The audit log and garbage collection concern all objects.
        if right == Right::Admin && rule != Self::all(Right::Admin) {
            Err(RuleError)
        } else {
            Ok(rule)
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("*", Kind::as_str);
        let star = if self.is_prefix { "*" } else { "" };
        write!(f, "{} {kind}/{}{star}", self.right.as_str(), self.name)
    }
}

/// The rights of a principal. Clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights(Arc<[Rule]>);

impl Rights {
    /// The rights that `rules` grant.
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules.into())
    }

    /// All rights, for the owner of the store.
    pub fn all() -> Self {
        Self::new(Right::ALL.map(Rule::all).into())
    }

    /// Whether a rule grants `right` to this object.
    pub fn allows(&self, right: Right, key: &Key) -> bool {
        self.0.iter().any(|rule| rule.right == right && rule.matches(key))
    }

    /// Whether a rule grants `right` to any object.
    pub fn allows_any(&self, right: Right) -> bool {
        self.0.iter().any(|rule| rule.right == right)
    }

    /// Whether one of these rules grants everything that `rule` grants.
    pub fn covers(&self, rule: &Rule) -> bool {
        self.0.iter().any(|one| one.covers(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(rules: &[&str]) -> Rights {
        Rights::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn a_rule_matches_its_kind_and_names_with_its_prefix() {
        let rights = rights(&["read */*", "write hyperty/acme.*", "yank hyperty/acme.one"]);
        assert!(rights.allows(Right::Read, &key("service/x")));
        assert!(rights.allows(Right::Write, &key("hyperty/acme.one")));
        assert!(!rights.allows(Right::Write, &key("hyperty/Acme.one")));
        assert!(!rights.allows(Right::Write, &key("runtime/acme.one")));
        assert!(!rights.allows(Right::Write, &key("hyperty/acme")));
        assert!(rights.allows(Right::Yank, &key("hyperty/acme.one")));
        assert!(!rights.allows(Right::Yank, &key("hyperty/acme.one.two")));
        assert!(!rights.allows_any(Right::Admin));
    }

    #[test]
    fn a_rule_covers_only_equal_or_narrower_rules() {
        let bound = rights(&["write hyperty/acme.*", "read hyperty/one"]);
        for inside in [
            "write hyperty/acme.*",
            "write hyperty/acme.x*",
            "write hyperty/acme.x",
            "read hyperty/one",
        ] {
            assert!(bound.covers(&inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "write */acme.*",
            "write hyperty/acm*",
            "read hyperty/acme.x",
            "read hyperty/one*",
            "admin */*",
        ] {
            assert!(!bound.covers(&outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn a_rule_allows_all_that_a_covered_rule_allows() {
        bolero::check!().with_type::<(String, String, String)>().for_each(|(one, other, name)| {
            let (Ok(one), Ok(other)) = (one.parse::<Rule>(), other.parse::<Rule>()) else { return };
            let Ok(name) = name.parse() else { return };
            let key = Key { kind: Kind::Hyperty, name };
            let one = Rights::new(vec![one]);
            let allowed = Rights::new(vec![other.clone()]);
            if one.covers(&other) && allowed.allows(other.right, &key) {
                assert!(one.allows(other.right, &key));
            }
        });
    }

    #[test]
    fn parsing_and_display_of_rules_are_inverse() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(rule) = text.parse::<Rule>() {
                assert_eq!(&rule.to_string(), text);
            }
        });
        for invalid in [
            "",
            "read",
            "read x",
            "read hyperty/",
            "read x/y",
            "admin hyperty/*",
            "read  */*",
            "own */*",
        ] {
            assert_eq!(invalid.parse::<Rule>(), Err(RuleError), "{invalid:?}");
        }
    }
}
