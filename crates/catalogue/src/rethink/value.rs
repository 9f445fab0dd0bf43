//! JSON values with numbers in their original form.

use indexmap::IndexMap;

/// The members of an object, in the order of their first occurrence. A repeated name replaces the
/// value and keeps the position.
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
