//! A value of the original: JSON, with numbers as they were written.

use std::borrow::Cow;

use indexmap::IndexMap;

use super::compact;

/// The members of an object, in the order of their first appearance. A name that comes again replaces the value and
/// keeps the place.
pub type Members = IndexMap<String, Value>;

/// A value, as the original's parser makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`, or nothing between two commas.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A number as it is written out again: `1.10` stays `1.10`.
    Number(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// An object.
    Object(Members),
}

impl Value {
    /// The string that stands for it between the two halves of the original: a text as it is, everything else as
    /// JSON. What is answered is this string, read anew.
    pub fn carried(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) | Self::Number(text) => Cow::Borrowed(text),
            Self::Flag(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
            Self::Null | Self::List(_) | Self::Object(_) => Cow::Owned(compact(self)),
        }
    }

    /// The text of what is neither null, object nor list; a list of one such value counts as the value.
    pub fn single(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(_) | Self::Number(_) | Self::Flag(_) => Some(self.carried()),
            Self::List(values) => match values.as_slice() {
                [value] => value.single(),
                _ => None,
            },
            Self::Null | Self::Object(_) => None,
        }
    }
}
