//! The names and keys that this home knows, for output: a name stands before its key.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use levada_core::printable::escape as plain;
use levada_core::{Identity, MIN_ABBREVIATION, abbreviate};
use levada_home::Home;
use levada_home::known::Known;

/// The names and keys of this home, as they were when the process first used them.
#[derive(Default)]
struct Directory {
    names: HashMap<Identity, String>,
    keys: BTreeSet<String>,
}

static DIRECTORY: OnceLock<Directory> = OnceLock::new();

/// The name that is pinned for `identity`, the oldest if it has several.
pub fn name_of(identity: &Identity) -> Option<&'static str> {
    directory().names.get(identity).map(String::as_str)
}

/// The text forms of the identities in `known.db`.
pub fn keys() -> &'static BTreeSet<String> {
    &directory().keys
}

/// The name of `identity` and its whole key, or only the key if it has no name here.
pub fn labelled(identity: &Identity) -> String {
    match name_of(identity) {
        Some(name) => format!("{} ({identity})", plain(name)),
        None => identity.to_string(),
    }
}

/// The name of `identity` and its abbreviated key, or the whole key if it has no name here.
pub fn named(identity: &Identity) -> String {
    let key = identity.to_string();
    match name_of(identity) {
        Some(name) => {
            format!("{} ({})", plain(name), abbreviate(&key, MIN_ABBREVIATION, keys()))
        }
        None => key,
    }
}

/// The name of `identity`, or its abbreviated key, where there is little space.
pub fn short(identity: &Identity) -> String {
    let key = identity.to_string();
    let short = || abbreviate(&key, MIN_ABBREVIATION, keys()).to_owned();
    name_of(identity).map_or_else(short, plain)
}

fn directory() -> &'static Directory {
    DIRECTORY.get_or_init(|| read().unwrap_or_default())
}

/// Reads `known.db`, if there is one that can be read: names only make output easier to read.
fn read() -> Option<Directory> {
    let (known, _) = Known::examine(&Home::find().ok()?.known_db()).ok()?;
    let keys = known.identities().ok()?.iter().map(ToString::to_string).collect();
    Some(Directory { names: known.name_of_each().ok()?, keys })
}
