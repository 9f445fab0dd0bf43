//! Blocks what matches a pattern.

use levada_session::contexts::{Action, Inspector, Path, Piece, Purpose};
use regex_lite::Regex;

use super::{Granted, Line};

/// The longest head that is searched, in bytes; a longer one is blocked.
const MAX_HEAD: usize = 64 * 1024;

/// Ends the session at a request whose head matches a pattern.
pub struct Filter {
    pattern: Regex,
    line: Line,
    granted: Granted,
    head: Vec<u8>,
}

impl Filter {
    /// A filter for heads such as `GET /path`, then `name: value` on each line; `line` takes the lines of its log.
    pub fn new(pattern: Regex, line: Line) -> Self {
        Self { pattern, line, granted: Granted::default(), head: Vec::new() }
    }

    fn block(&self, what: String) -> Action {
        (self.line)(format!("blocked, and the session ended: {what}"));
        Action::Block(what)
    }
}

impl Inspector for Filter {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if self.granted.purpose(piece.context) != Purpose::RequestHead {
            return Action::Pass;
        }
        self.head.extend_from_slice(piece.data);
        if self.head.len() > MAX_HEAD {
            return self.block("a request with a head that is too long to be searched".to_owned());
        }
        if self.pattern.is_match(&String::from_utf8_lossy(&self.head)) {
            return self.block(format!("a request that matches `{}`", self.pattern));
        }
        if piece.end {
            self.head.clear();
        }
        Action::Pass
    }
}
