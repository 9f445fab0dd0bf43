//! The cells of a table, each with a whole and a short form.

use std::collections::BTreeSet;

use levada_core::printable::escape as plain;
use levada_core::{Identity, MIN_ABBREVIATION, UnixTime, abbreviate};

use super::moment::{self, short_time};
use crate::directory;

/// The minimum digits of an abbreviated id.
const MIN_ID: usize = 8;
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text that is cut if the table does not fit otherwise.
    Text(String),
    /// Text that is never cut, such as a number or a time.
    Whole(String),
    /// A time.
    Time(UnixTime),
    /// A word for a state, and the number of its colour (ECMA-48: SGR), if it matters.
    State(String, Option<u8>),
    /// A key or an id, abbreviated on a terminal.
    Key(Key),
    /// A name and its key.
    Named(String, Key),
}

/// A key or an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: String,
    /// The length of an abbreviation, at least.
    min: usize,
    /// The length where there is no terminal; `None` for the whole.
    piped: Option<usize>,
}

/// The forms of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Everything (`--wide`).
    Wide,
    /// For a file or a pipe, where programs may read it.
    Piped,
    /// Abbreviated keys.
    Short,
    /// Abbreviated keys and times, and only the name of what has one.
    Narrow,
}

impl Cell {
    /// Text of any source.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Text that is never cut.
    pub fn whole(text: impl ToString) -> Self {
        Self::Whole(text.to_string())
    }

    /// A time of a JSON document, in seconds since 1970.
    pub fn time(seconds: u64) -> Self {
        Self::Time(UnixTime(seconds))
    }

    /// A word for a state.
    pub fn state(word: impl Into<String>) -> Self {
        let word = word.into();
        let color = color_of(&word);
        Self::State(word, color)
    }

    /// The state of what runs now, in its own word.
    pub fn running(word: impl Into<String>) -> Self {
        Self::State(word.into(), Some(GREEN))
    }

    /// An identity, with the name that it has here, if any.
    pub fn identity(identity: &Identity) -> Self {
        Self::named(directory::name_of(identity), &identity.to_string(), None)
    }

    /// As [`Self::identity`], with at most 10 characters of the key where there is no terminal.
    pub fn short_identity(identity: &Identity) -> Self {
        let name = directory::name_of(identity);
        Self::named(name, &identity.to_string(), Some(MIN_ABBREVIATION))
    }

    /// The key of an identity whose name is in another column.
    pub fn key(text: &str, piped: Option<usize>) -> Self {
        Self::named(None, text, piped)
    }

    /// A name, if there is one, and the text of a key, with `piped` characters of it where there is
    /// no terminal.
    pub fn named(name: Option<&str>, text: &str, piped: Option<usize>) -> Self {
        let key = Key { text: plain(text), min: MIN_ABBREVIATION, piped };
        match name {
            Some(name) => Self::Named(plain(name), key),
            None => Self::Key(key),
        }
    }

    /// The id of a session, a capability or a ticket.
    pub fn id(text: &str, piped: Option<usize>) -> Self {
        Self::Key(Key { text: plain(text), min: MIN_ID, piped })
    }

    /// The key or id in this cell.
    pub(super) fn key_text(&self) -> Option<&str> {
        match self {
            Self::Key(key) | Self::Named(_, key) => Some(&key.text),
            _ => None,
        }
    }

    /// Returns true if it may be cut.
    pub(super) fn is_cuttable(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Its text, with keys as long as no other one in `keys` begins alike.
    pub(super) fn shown(&self, form: Form, keys: &BTreeSet<String>) -> String {
        let text = match self {
            Self::Text(text) | Self::Whole(text) | Self::State(text, _) => text.clone(),
            Self::Time(time) if form == Form::Narrow => short_time(*time),
            Self::Time(time) => moment::time(*time),
            Self::Key(key) => key.shown(form, keys).to_owned(),
            Self::Named(name, _) if form == Form::Narrow => name.clone(),
            Self::Named(name, key) => format!("{name} ({})", key.shown(form, keys)),
        };
        plain(&text)
    }

    /// The number of its colour, if it has one.
    pub(super) fn color(&self) -> Option<u8> {
        match self {
            Self::State(_, color) => *color,
            _ => None,
        }
    }
}

fn color_of(state: &str) -> Option<u8> {
    match state {
        "running" | "served" | "shown" | "fine" => Some(GREEN),
        "denied" | "refused" | "expired" | "failed" | "revoked" | "wrong" | "conflicting"
        | "damaged" | "lost" => Some(RED),
        "waiting" | "ready" | "away" | "new" | "note" | "yanked" | "not served" | "starting" => {
            Some(YELLOW)
        }
        _ => None,
    }
}

impl Key {
    fn shown(&self, form: Form, keys: &BTreeSet<String>) -> &str {
        match (form, self.piped) {
            (Form::Wide, _) | (Form::Piped, None) => &self.text,
            (Form::Piped, Some(length)) => self.text.get(..length).unwrap_or(&self.text),
            (Form::Short | Form::Narrow, _) => abbreviate(&self.text, self.min, keys),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
