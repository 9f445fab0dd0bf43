//! Patterns of services: which services of which nodes a rule applies to.

use std::fmt;
use std::str::FromStr;

use levada_core::Identity;
use regex_lite::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thiserror::Error;

/// NODE/SERVICE, where NODE is an identity or `*`, and `*` in SERVICE stands for any characters.
#[derive(Clone, Debug)]
pub struct ServicePattern {
    node: Option<Identity>,
    service: String,
    regex: Regex,
}

/// Not a pattern of services.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "expected NODE/SERVICE: NODE is an identity or `*`, and `*` in SERVICE stands for any characters"
)]
pub struct PatternError;

/// The longest name of a service, and the longest pattern of one, in bytes.
const MAX_SERVICE: usize = 255;

impl ServicePattern {
    /// Services of `node` whose names match `service`; of every node if `node` is `None`.
    ///
    /// # Errors
    /// [`PatternError`] if `service` is empty, too long, or has a `/` or a control character.
    pub fn new(node: Option<Identity>, service: &str) -> Result<Self, PatternError> {
        let wrong = |c: char| c == '/' || c.is_control();
        if service.is_empty() || service.len() > MAX_SERVICE || service.contains(wrong) {
            return Err(PatternError);
        }
        let parts: Vec<String> = service.split('*').map(regex_lite::escape).collect();
        let regex = Regex::new(&format!(r"\A{}\z", parts.join(".*"))).map_err(|_| PatternError)?;
        Ok(Self { node, service: service.to_owned(), regex })
    }

    /// The same services of `node`; of every node if `node` is `None`.
    #[must_use]
    pub fn at(self, node: Option<Identity>) -> Self {
        Self { node, ..self }
    }

    /// The name of the service, in which `*` stands for any characters.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns true if it matches services of `node`.
    pub fn is_at(&self, node: &Identity) -> bool {
        self.node.is_none_or(|only| only == *node)
    }

    /// Returns true if it names one service, without `*`.
    pub fn is_exact(&self) -> bool {
        !self.service.contains('*')
    }

    /// Whether it matches this service of this node.
    pub fn matches(&self, node: &Identity, service: &str) -> bool {
        self.is_at(node) && service.len() <= MAX_SERVICE && self.regex.is_match(service)
    }
}

impl FromStr for ServicePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (node, service) = text.rsplit_once('/').ok_or(PatternError)?;
        let node = match node {
            "*" => None,
            node => Some(node.parse().map_err(|_| PatternError)?),
        };
        Self::new(node, service)
    }
}

impl fmt::Display for ServicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}/{}", self.service),
            None => write!(f, "*/{}", self.service),
        }
    }
}

impl<'de> Deserialize<'de> for ServicePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Identity = Identity::from_bytes([1; 32]);
    const TWO: Identity = Identity::from_bytes([2; 32]);

    #[test]
    fn a_service_is_matched_completely() {
        let pattern: ServicePattern = format!("{ONE}/exec").parse().unwrap();
        assert!(pattern.matches(&ONE, "exec"));
        assert!(!pattern.matches(&TWO, "exec"));
        for other in ["exec2", "an-exec", "EXEC", "", "exec\n"] {
            assert!(!pattern.matches(&ONE, other), "{other:?}");
        }
    }

    #[test]
    fn a_star_matches_any_node_and_any_characters() {
        let any: ServicePattern = "*/*".parse().unwrap();
        assert!(any.matches(&ONE, "exec") && any.matches(&TWO, "a.b"));
        let some: ServicePattern = "*/re*.d*".parse().unwrap();
        assert!(some.matches(&ONE, "re.d") && some.matches(&TWO, "report.daily"));
        assert!(!some.matches(&ONE, "reXd") && !some.matches(&ONE, "are.d"));
    }

    #[test]
    fn arbitrary_text_never_panics_and_patterns_round_trip() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(pattern) = text.parse::<ServicePattern>() {
                assert_eq!(&pattern.to_string(), text);
                let _ = pattern.matches(&ONE, text);
            }
        });
        for wrong in ["", "exec", "/exec", "*/", "alpha/exec", "**/exec", "*/a/b"] {
            assert!(wrong.parse::<ServicePattern>().is_err(), "{wrong:?}");
        }
    }
}
