//! JSON values with numbers in their original form.

use std::borrow::Cow;

use indexmap::IndexMap;

use super::compact;

/// The members of an object, in the order of their first occurrence. A repeated name replaces the value and keeps the
/// position.
pub type Members = IndexMap<String, Value>;

/// A value as parsed by reTHINK's catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`, or an empty element of a list.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The text of a number: `1.10` stays `1.10`.
    Number(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// An object.
    Object(Members),
}

impl Value {
    /// The string by which the components of reTHINK's catalogue exchanged the value: a text unchanged, any other value as
    /// JSON. Answers contain the value that this string parses to.
    pub fn serialized(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Number(text) => Cow::Borrowed(text),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Null | Self::List(_) | Self::Object(_) => Cow::Owned(compact(self)),
        }
    }

    /// The text of a string, number or boolean, or of a list with one of them as its only element.
    pub fn scalar(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(_) | Self::Number(_) | Self::Bool(_) => Some(self.serialized()),
            Self::List(values) => match values.as_slice() {
                [value] => value.scalar(),
                _ => None,
            },
            Self::Null | Self::Object(_) => None,
        }
    }
}
