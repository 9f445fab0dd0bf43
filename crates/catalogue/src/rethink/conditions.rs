//! Conditions of a POST: a JSON object whose members give, for each attribute, the value that the
//! client offers. An object matches only if every offer covers the value of its attribute.
//!
//! The object's value is the requirement: a stub with `"constraints": {"browser": true}` matches
//! the conditions `{"constraints": {"browser": true, "x": 1}}`.

use std::borrow::Cow;

use thiserror::Error;

use super::template::reparse;
use super::utf8::decode;
use super::write::compact_members;
use super::{Members, Value, parse};

/// The maximum number of values in conditions. Each is compared with the values of every object of
/// a type.
pub const MAX_CONDITIONS: usize = 1024;

/// The body of a POST is not a JSON object, or has more than [`MAX_CONDITIONS`] values.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("Unable to handle request")]
pub struct InvalidConditions;

/// The values that a client offers, by attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Members);

impl Conditions {
    /// Parses the body of a POST, as leniently as descriptors. `None` if it has only blanks and
    /// comments: such a POST is answered like GET.
    ///
    /// # Errors
    /// [`InvalidConditions`] if it is not an object or has more than [`MAX_CONDITIONS`] values.
    pub fn parse(body: &[u8]) -> Result<Option<Self>, InvalidConditions> {
        match parse(&decode(body)) {
            Ok(None) => Ok(None),
            Ok(Some(Value::Object(members))) => {
                let count = members.values().map(count_values).sum::<usize>();
                if count > MAX_CONDITIONS {
                    Err(InvalidConditions)
                } else {
                    Ok(Some(Self(members)))
                }
            }
            _ => Err(InvalidConditions),
        }
    }

    /// Compact JSON, for the text of an answer without a match.
    pub fn text(&self) -> String {
        compact_members(&self.0)
    }

    /// Whether there are none, so that every object matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object matches. `serialized` returns the serialized values of its attributes.
    pub(super) fn matches<'a>(&self, serialized: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0.iter().all(|(name, offered)| {
            let required = serialized(name).and_then(|serialized| reparse(&serialized));
            required.is_some_and(|required| covers(Some(offered), &required))
        })
    }
}

fn count_values(value: &Value) -> usize {
    match value {
        Value::List(values) => 1 + values.iter().map(count_values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count_values).sum::<usize>(),
        _ => 1,
    }
}

/// Whether an offer covers a required value. An empty list or object is covered by anything, null
/// by nothing.
fn covers(offered: Option<&Value>, required: &Value) -> bool {
    match required {
        Value::Null => false,
        Value::List(required) => match offered {
            Some(Value::List(offered)) => {
                required.iter().all(|one| offered.iter().any(|other| is_equal(one, other)))
            }
            _ => required.is_empty(),
        },
        Value::Object(required) => match offered {
            Some(Value::Object(offered)) => {
                required.iter().all(|(name, required)| covers(offered.get(name), required))
            }
            _ => required.is_empty(),
        },
        required => match (offered.and_then(Value::scalar), required.scalar()) {
            (Some(offered), Some(required)) => {
                offered == required || is_equal_float(&offered, &required)
            }
            _ => false,
        },
    }
}

/// Whether two values are equal, with numbers compared by their numeric value.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || number(one).is_some_and(|one| Some(one) == number(other))
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let equal = |(name, one): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_equal(one, other))
            };
            one.len() == other.len() && one.iter().all(equal)
        }
        _ => one == other,
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Whether both texts parse as numbers that are equal in 32 bits.
#[allow(clippy::float_cmp)] // reTHINK's catalogue compares exactly.
fn is_equal_float(one: &str, other: &str) -> bool {
    float(one).is_some_and(|one| float(other) == Some(one))
}

/// Parses a number as Java's `Float.parseFloat` does, except hexadecimal ones. Blanks around it and
/// a type suffix are allowed.
fn float(text: &str) -> Option<f32> {
    let text = text.trim_matches(|c| c <= ' ');
    let plain = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    if plain.trim_start_matches(['+', '-']) == "Infinity" || plain.chars().all(digits) {
        return plain.parse().ok();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(offered: &str, required: &str) -> bool {
        let conditions =
            Conditions::parse(format!("{{a: {offered}}}").as_bytes()).unwrap().unwrap();
        conditions.matches(|name| (name == "a").then(|| required.to_owned().into()))
    }

    #[test]
    fn an_offer_covers_the_required_value() {
        for (offered, required) in [
            ("1", "1.0"),
            ("'1.0'", "1"),
            ("[1]", "1"),
            ("1e0", "1f"),
            ("true", "true"),
            ("'TRUE'", "\"TRUE\""),
            ("['a', 'b', 'c']", "['c','a']"),
            ("[1.0, {x: 2, y: [null]}]", "[{y:[null], x:2.0}, 1]"),
            ("{browser: true, x: 1}", "{browser:true}"),
            ("{a: {b: 'c', d: 1}}", "{a:{b:c}}"),
            ("'anything'", "[]"),
            ("'anything'", "{}"),
            ("{}", "{a:[]}"),
            ("0.1", "0.10000000149"),
            ("Infinity", "'+Infinity'"),
        ] {
            assert!(is_match(offered, required), "{offered} {required}");
        }
        for (offered, required) in [
            ("1", "2"),
            ("'a'", "A"),
            ("{browser: false}", "{browser:true}"),
            ("{}", "{browser:true}"),
            ("{x: 1}", "{browser:true}"),
            ("['a']", "['a','b']"),
            ("'a'", "['a']"),
            ("['a', 'b']", "a"),
            ("null", "null"),
            ("null", ""),
            ("'nan'", "'NAN'"),
            ("['1']", "[1]"),
            ("true", "1"),
        ] {
            assert!(!is_match(offered, required), "{offered} {required}");
        }
        assert!(!Conditions::parse(b"{b:1}").unwrap().unwrap().matches(|_| None));
        assert!(Conditions::parse(b"{}").unwrap().unwrap().matches(|_| None));
    }

    #[test]
    fn a_body_is_an_object_or_empty() {
        for empty in ["", "  ", "# comment"] {
            assert_eq!(Conditions::parse(empty.as_bytes()), Ok(None));
        }
        for other in ["null", "[1]", "{x", "1", "{} x", "{a:1} # comment"] {
            assert_eq!(Conditions::parse(other.as_bytes()), Err(InvalidConditions), "{other}");
        }
        let read = Conditions::parse(b"{'version':1.0,x:[null,'<']}").unwrap().unwrap();
        assert_eq!(read.text(), r#"{"version":1.0,"x":[null,"<"]}"#);
        let many = format!("{{a:[{}]}}", "1,".repeat(MAX_CONDITIONS));
        assert_eq!(Conditions::parse(many.as_bytes()), Err(InvalidConditions));
    }

    #[test]
    fn accepted_bodies_round_trip() {
        bolero::check!().with_type::<(Vec<u8>, String)>().for_each(|(body, value)| {
            if let Ok(Some(conditions)) = Conditions::parse(body) {
                let matched = conditions.matches(|_| Some(value.clone().into()));
                assert!(matched || !conditions.is_empty());
                assert_eq!(conditions.matches(|_| None), conditions.is_empty());
                let again = Conditions::parse(conditions.text().as_bytes());
                assert_eq!(again, Ok(Some(conditions)));
            }
        });
    }
}
