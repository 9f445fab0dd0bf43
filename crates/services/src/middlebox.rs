//! A middlebox, and what it does with what both endpoints let it see.

mod chain;
mod filter;
mod log;
mod plugins;
mod rewrite;
mod serve;

pub use chain::Chain;
pub use filter::Filter;
pub use log::{Line, Log};
pub use plugins::{Plugins, next_party};
pub use regex_lite::Regex;
pub use rewrite::AddField;
pub use serve::{Failed, MakeInspector, Middlebox, Policy, trace_failures};

use levada_session::contexts::{Path, Purpose, Right};

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
}
