//! Conditions of a POST: a JSON object, attribute by attribute what a client offers. An object is answered only if the
//! client's offer covers each attribute that is named.
//!
//! The value of the object is what is asked for, that of the client what is offered: a stub with
//! `"constraints": {"browser": true}` is answered to a client that sends `{"constraints": {"browser": true, "x": 1}}`.

use std::borrow::Cow;

use thiserror::Error;

use super::answer::reread;
use super::utf8::decode;
use super::write::compact_members;
use super::{Members, Value, parse};

/// How many values conditions may have: each is compared with values of every object of a type.
pub const MAX_CONDITIONS: usize = 1024;

/// The body of a POST is no JSON object, or has more than [`MAX_CONDITIONS`] values.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("Unable to handle request")]
pub struct NoConditions;

/// What a client offers, by attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Members);

impl Conditions {
    /// Reads the body of a POST, as leniently as every other JSON of the original. `None` if there is nothing in it:
    /// such a POST is answered like GET.
    ///
    /// # Errors
    /// [`NoConditions`] if it is no object or has too many values.
    pub fn read(body: &[u8]) -> Result<Option<Self>, NoConditions> {
        match parse(&decode(body)) {
            Ok(None) => Ok(None),
            Ok(Some(Value::Object(members))) => {
                let count = members.values().map(count).sum::<usize>();
                if count > MAX_CONDITIONS { Err(NoConditions) } else { Ok(Some(Self(members))) }
            }
            _ => Err(NoConditions),
        }
    }

    /// As compact JSON, for the text that says that they are not met.
    pub fn text(&self) -> String {
        compact_members(&self.0)
    }

    /// Whether there are none: everything meets them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are met by an object; `carried` gives the carried text of its attributes.
    pub(super) fn are_met<'a>(&self, carried: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0.iter().all(|(name, offered)| {
            let asked = carried(name).and_then(|carried| reread(&carried));
            asked.is_some_and(|asked| covers(Some(offered), &asked))
        })
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::List(values) => 1 + values.iter().map(count).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Whether an offer has everything that is asked for. What asks for nothing is covered by anything, null by nothing.
fn covers(offered: Option<&Value>, asked: &Value) -> bool {
    match asked {
        Value::Null => false,
        Value::List(asked) => match offered {
            Some(Value::List(offered)) => {
                asked.iter().all(|one| offered.iter().any(|other| is_same(one, other)))
            }
            _ => asked.is_empty(),
        },
        Value::Object(asked) => match offered {
            Some(Value::Object(offered)) => {
                asked.iter().all(|(name, asked)| covers(offered.get(name), asked))
            }
            _ => asked.is_empty(),
        },
        single => match (offered.and_then(Value::single), single.single()) {
            (Some(offered), Some(asked)) => offered == asked || is_same_float(&offered, &asked),
            _ => false,
        },
    }
}

/// Whether two values are the same, numbers by their value.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || number(one).is_some_and(|one| Some(one) == number(other))
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, one): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_same(one, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Whether both are numbers of 32 bits, and equal: also texts, and as exact as that.
#[allow(clippy::float_cmp)] // The rule itself.
fn is_same_float(one: &str, other: &str) -> bool {
    float(one).is_some_and(|one| float(other) == Some(one))
}

/// A number as Java's `Float.parseFloat` reads one, but for hexadecimal ones. Blanks around it and a letter for its
/// type are allowed.
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

    fn is_met(offered: &str, asked: &str) -> bool {
        let conditions = Conditions::read(format!("{{a: {offered}}}").as_bytes()).unwrap().unwrap();
        conditions.are_met(|name| (name == "a").then(|| asked.to_owned().into()))
    }

    #[test]
    fn an_offer_covers_what_is_asked_for() {
        for (offered, asked) in [
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
            assert!(is_met(offered, asked), "{offered} {asked}");
        }
        for (offered, asked) in [
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
            assert!(!is_met(offered, asked), "{offered} {asked}");
        }
        assert!(!Conditions::read(b"{b:1}").unwrap().unwrap().are_met(|_| None));
        assert!(Conditions::read(b"{}").unwrap().unwrap().are_met(|_| None));
    }

    #[test]
    fn a_body_is_an_object_or_nothing() {
        for nothing in ["", "  ", "# comment"] {
            assert_eq!(Conditions::read(nothing.as_bytes()), Ok(None));
        }
        for other in ["null", "[1]", "{x", "1", "{} x", "{a:1} # comment"] {
            assert_eq!(Conditions::read(other.as_bytes()), Err(NoConditions), "{other}");
        }
        let read = Conditions::read(b"{'version':1.0,x:[null,'<']}").unwrap().unwrap();
        assert_eq!(read.text(), r#"{"version":1.0,"x":[null,"<"]}"#);
        let many = format!("{{a:[{}]}}", "1,".repeat(MAX_CONDITIONS));
        assert_eq!(Conditions::read(many.as_bytes()), Err(NoConditions));
    }

    #[test]
    fn any_body_is_read_or_refused() {
        bolero::check!().with_type::<(Vec<u8>, String)>().for_each(|(body, asked)| {
            if let Ok(Some(conditions)) = Conditions::read(body) {
                let _ = conditions.are_met(|_| Some(asked.clone().into()));
                assert!(parse(&conditions.text()).is_ok());
            }
        });
    }
}
