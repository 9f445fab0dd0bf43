//! Blocks what matches a pattern.

use levada_contexts::{Action, Inspector, Path, Piece, Purpose};
use regex_lite::Regex;

use super::{Granted, Need, SessionLog};

/// The longest head that is searched, in bytes; a longer one is blocked.
const MAX_HEAD: usize = 64 * 1024;

/// Ends the session at a request whose head matches a pattern.
pub struct Filter {
    pattern: Regex,
    log: SessionLog,
    granted: Granted,
    head: Vec<u8>,
}

impl Filter {
    /// A filter for heads such as `GET /path`, then `name: value` on each line; `log` is the log of
    /// the session.
    pub fn new(pattern: Regex, log: SessionLog) -> Self {
        Self { pattern, log, granted: Granted::default(), head: Vec::new() }
    }

    fn block(&self, what: String) -> Action {
        self.log.note(format!("blocked, and the session ended: {what}"));
        Action::Block(what)
    }
}

/// A head in one spelling, whichever its client has chosen: names in lower case, `: ` before a
/// value without white space around it, and lines that end with LF, so that `$` matches there.
fn canonical(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let mut all = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        all.push('\n');
        match line.split_once(':') {
            Some((name, value)) => {
                all.push_str(&name.trim().to_ascii_lowercase());
                all.push_str(": ");
                all.push_str(value.trim());
            }
            None => all.push_str(line),
        }
    }
    all
}

impl Inspector for Filter {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
        if let Err(reason) = Need::BLOCK.check_granted(&self.granted) {
            let what = &self.pattern;
            self.log.note(format!("block: `{what}` is not searched everywhere: {reason}"));
        }
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if self.granted.purpose(piece.context) != Purpose::RequestHead {
            return Action::Pass;
        }
        if self.head.len() + piece.data.len() > MAX_HEAD {
            return self.block("a request with a head that is too long to be searched".to_owned());
        }
        self.head.extend_from_slice(piece.data);
        // Once for each head: a search at every record takes quadratic time for a head in many
        // records. The node does nothing with a head before its last record.
        if !piece.end {
            return Action::Pass;
        }
        let head = std::mem::take(&mut self.head);
        if self.pattern.is_match(&canonical(&head)) {
            return self.block(format!("a request that matches `{}`", self.pattern));
        }
        Action::Pass
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use levada_contexts::{Direction, Right};

    use super::*;
    use crate::middlebox::Entry;

    const HEAD: u8 = 1;
    const OTHER: [u8; 3] = [2, 3, 4];

    /// A filter that may read everything, and the lines of its log.
    fn filter(pattern: &str) -> (Filter, Arc<Mutex<Vec<String>>>) {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = lines.clone();
        let write = Arc::new(move |entry: Entry| log.lock().unwrap().push(entry.event.to_string()));
        let log = SessionLog::new(1, write);
        let mut filter = Filter::new(Regex::new(pattern).unwrap(), log);
        let purposes = [
            Purpose::RequestHead,
            Purpose::RequestBody,
            Purpose::ResponseHead,
            Purpose::ResponseBody,
        ];
        filter.granted = Granted(purposes.map(|purpose| (purpose, Right::Read)).to_vec());
        (filter, lines)
    }

    fn record(filter: &mut Filter, context: u8, data: &[u8], end: bool) -> Action {
        let direction = if context > 2 { Direction::ToClient } else { Direction::ToServer };
        filter.record(Piece { direction, context, data, end, origin: 0 })
    }

    #[test]
    fn a_head_that_matches_is_blocked_and_logged_and_others_pass() {
        let (mut filter, lines) = filter("^GET /private|(?m)^x-secret: ");
        for head in ["GET /public\r\na: /private\r\n", "POST /private\r\n", ""] {
            let action = record(&mut filter, HEAD, head.as_bytes(), true);
            assert_eq!(action, Action::Pass, "{head}");
        }
        let why = "a request that matches `^GET /private|(?m)^x-secret: `";
        for head in ["GET /private/page\r\n", "GET /\r\nx-secret: a\r\n"] {
            let action = record(&mut filter, HEAD, head.as_bytes(), true);
            assert_eq!(action, Action::Block(why.to_owned()), "{head}");
            let line = format!("blocked, and the session ended: {why}");
            assert_eq!(lines.lock().unwrap().pop(), Some(line));
        }
        assert!(lines.lock().unwrap().is_empty());
    }

    #[test]
    fn a_pattern_is_found_across_records_of_one_head_and_not_across_two() {
        let (mut one, _) = filter("private");
        assert_eq!(record(&mut one, HEAD, b"GET /pri", false), Action::Pass);
        assert!(matches!(record(&mut one, HEAD, b"vate\r\n", true), Action::Block(_)));
        // What matches is blocked with the last record, and is searched once: a head of 63 KB in
        // records of one byte costs as much as in one record.
        let (mut late, _) = filter("private");
        assert_eq!(record(&mut late, HEAD, b"GET /private", false), Action::Pass);
        assert!(matches!(record(&mut late, HEAD, b"", true), Action::Block(_)));
        let (mut two, _) = filter("private");
        assert_eq!(record(&mut two, HEAD, b"GET /pri", true), Action::Pass);
        assert_eq!(record(&mut two, HEAD, b"vate\r\n", true), Action::Pass);
    }

    #[test]
    fn only_heads_of_requests_are_searched() {
        let (mut filter, _) = filter(".");
        for context in OTHER {
            assert_eq!(record(&mut filter, context, b"anything", true), Action::Pass, "{context}");
        }
        assert!(matches!(record(&mut filter, HEAD, b"anything", true), Action::Block(_)));
    }

    #[test]
    fn a_head_that_is_too_long_to_be_searched_is_blocked() {
        let (mut filter, lines) = filter("private");
        assert_eq!(record(&mut filter, HEAD, &[b'a'; MAX_HEAD], false), Action::Pass);
        let Action::Block(why) = record(&mut filter, HEAD, b"a", false) else { panic!() };
        assert_eq!(why, "a request with a head that is too long to be searched");
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_field_is_found_in_every_spelling() {
        for head in ["x-bad: evil", "X-BAD: evil", "x-bad:evil", "x-Bad:\t  evil \t"] {
            for pattern in ["(?m)^x-bad: evil$", "(?m)^x-bad:", "evil$"] {
                let (mut filter, _) = filter(pattern);
                let head = format!("GET /\r\na: b\r\n{head}\r\n");
                let action = record(&mut filter, HEAD, head.trim_end().as_bytes(), true);
                assert!(matches!(action, Action::Block(_)), "{head:?} and {pattern}");
            }
        }
        let (mut filter, _) = filter("(?m)^x-bad: evil$");
        let whole = b"GET /\r\nx-bad: evil\r\nc: d\r\n";
        assert!(matches!(record(&mut filter, HEAD, whole, true), Action::Block(_)));
    }

    /// What is no UTF-8 is searched, too.
    #[test]
    fn bytes_that_are_no_text_do_not_hide_a_match() {
        let (mut filter, _) = filter("private");
        let head = b"GET /\xff\xfe?private\xc3\r\n";
        assert!(matches!(record(&mut filter, HEAD, head, true), Action::Block(_)));
    }
}
