//! Blocks what matches a pattern.

use levada_session::contexts::{Action, Inspector, Path, Piece, Purpose};
use regex_lite::Regex;

use super::Purposes;

/// The longest head that is searched, in bytes; a longer one is blocked.
const MAX_HEAD: usize = 64 * 1024;

/// Ends the session at a request whose head matches a pattern.
pub struct Filter {
    pattern: Regex,
    purposes: Purposes,
    head: Vec<u8>,
}

impl Filter {
    /// A filter for heads such as `GET /path`, then `name: value` on each line.
    pub fn new(pattern: Regex) -> Self {
        Self { pattern, purposes: Purposes::default(), head: Vec::new() }
    }
}

impl Inspector for Filter {
    fn granted(&mut self, path: &Path, _: u8) {
        self.purposes = Purposes::new(path);
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if self.purposes.of(piece.context) != Purpose::RequestHead {
            return Action::Pass;
        }
        self.head.extend_from_slice(piece.data);
        if self.head.len() > MAX_HEAD {
            return Action::Block(
                "a request with a head that is too long to be searched".to_owned(),
            );
        }
        if self.pattern.is_match(&String::from_utf8_lossy(&self.head)) {
            return Action::Block(format!("a request that matches `{}`", self.pattern));
        }
        if piece.end {
            self.head.clear();
        }
        Action::Pass
    }
}
