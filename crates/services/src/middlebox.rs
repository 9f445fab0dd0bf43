//! A middlebox, and what it does with what both endpoints let it see.

mod filter;
mod log;
mod plugins;
mod rewrite;
mod serve;

pub use filter::Filter;
pub use log::{Line, Log};
pub use plugins::{Plugins, next_party};
pub use regex_lite::Regex;
pub use rewrite::AddField;
pub use serve::{Failed, MakeInspector, Middlebox, Policy, trace_failures};

use levada_session::contexts::{Action, Inspector, Path, Piece, Purpose};

/// What a context carries on the path of a session.
#[derive(Default)]
struct Purposes(Vec<Purpose>);

impl Purposes {
    fn new(path: &Path) -> Self {
        Self(path.contexts.iter().map(|context| context.purpose).collect())
    }

    fn of(&self, context: u8) -> Purpose {
        let at = usize::from(context).checked_sub(1);
        at.and_then(|at| self.0.get(at)).copied().unwrap_or(Purpose::Other)
    }
}

/// Several inspectors, of which each sees what the one before it has made.
pub struct Chain(pub Vec<Box<dyn Inspector>>);

impl Inspector for Chain {
    fn granted(&mut self, path: &Path, hop: u8) {
        for one in &mut self.0 {
            one.granted(path, hop);
        }
    }

    fn started(&mut self, started: bool, realm: Option<[u8; 16]>) {
        for one in &mut self.0 {
            one.started(started, realm);
        }
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        let mut replaced: Option<Vec<u8>> = None;
        for one in &mut self.0 {
            let data = replaced.as_deref().unwrap_or(piece.data);
            match one.record(Piece { data, ..piece }) {
                Action::Pass => {}
                Action::Replace(data) => replaced = Some(data),
                Action::Block(why) => return Action::Block(why),
            }
        }
        replaced.map_or(Action::Pass, Action::Replace)
    }

    fn exchange(
        &mut self,
        direction: levada_session::contexts::Direction,
        number: u64,
        endorsed: bool,
    ) {
        for one in &mut self.0 {
            one.exchange(direction, number, endorsed);
        }
    }

    fn answer(&mut self, number: u64) -> Option<Vec<(u8, Vec<u8>)>> {
        self.0.iter_mut().find_map(|one| one.answer(number))
    }
}
