//! A middlebox, and what it does with what both endpoints let it see.

mod cache;
mod chain;
mod compress;
mod filter;
mod limit;
mod log;
mod needs;
mod plugins;
mod rewrite;
mod serve;

pub use cache::{Cache, CacheInspector};
pub use chain::Chain;
pub use compress::Compress;
pub use filter::Filter;
pub use log::{Entry, Event, Log, SessionLog, WriteEntry};
pub use needs::Need;
pub use plugins::{Plugins, next_party, parse_cache_size};
pub use regex_lite::Regex;
pub use rewrite::AddField;
pub use serve::{Failed, MakeInspector, Middlebox, Policy, trace_failures};

use levada_contexts::{Path, Purpose, Right};

use crate::http::ResponseHead;

/// What the contexts of a session carry, and what this middlebox may do with each.
#[derive(Default)]
struct Granted(Vec<(Purpose, Right)>);

impl Granted {
    fn new(path: &Path, hop: u8) -> Self {
        let contexts = (1u8..).zip(&path.contexts);
        Self(contexts.map(|(number, one)| (one.purpose, path.right(number, hop))).collect())
    }

    /// What a context carries.
    fn purpose(&self, context: u8) -> Purpose {
        self.context(context).map_or(Purpose::Other, |(purpose, _)| purpose)
    }

    fn may_write(&self, context: u8) -> bool {
        self.context(context).is_some_and(|(_, right)| right == Right::Write)
    }

    fn context(&self, context: u8) -> Option<(Purpose, Right)> {
        self.0.get(usize::from(context).checked_sub(1)?).copied()
    }

    /// The number of the context for a purpose.
    fn number(&self, purpose: Purpose) -> Option<u8> {
        let at = self.0.iter().position(|(known, _)| *known == purpose)?;
        u8::try_from(at + 1).ok()
    }

    /// The right in the context for a purpose.
    fn right(&self, purpose: Purpose) -> Right {
        let context = self.0.iter().find(|(known, _)| *known == purpose);
        context.map_or(Right::None, |(_, right)| *right)
    }
}

/// The head of a response as it travels.
fn encode_response(head: &ResponseHead) -> Vec<u8> {
    let mut bytes = format!("{}\r\n", head.status.as_str()).into_bytes();
    for (name, value) in &head.fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes
}
