//! Logs what a middlebox holds, and what passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_session::contexts::{Action, Direction, Inspector, Path, Piece, Purpose, Right};

use super::Granted;

/// Takes a line of the log.
pub type Line = Arc<dyn Fn(String) + Send + Sync>;

/// Writes a line when a session begins, with the rights, and one for each message, with the names of its fields and the bytes of each context.
pub struct Log {
    line: Line,
    granted: Granted,
    /// By direction: the head, and the bytes of each context.
    passing: [(Vec<u8>, BTreeMap<u8, usize>); 2],
}

/// The longest head that is kept for the log, in bytes.
const MAX_HEAD: usize = 16 * 1024;

impl Log {
    /// A log that passes its lines to `line`.
    pub fn new(line: Line) -> Self {
        Self { line, granted: Granted::default(), passing: Default::default() }
    }
}

/// The name of a context in logs.
fn name(purpose: Purpose, context: u8) -> String {
    match purpose {
        Purpose::RequestHead => "request-head".to_owned(),
        Purpose::RequestBody => "request-body".to_owned(),
        Purpose::ResponseHead => "response-head".to_owned(),
        Purpose::ResponseBody => "response-body".to_owned(),
        _ => format!("context {context}"),
    }
}

impl Inspector for Log {
    fn wants_endorsements(&self) -> bool {
        false
    }

    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
        let rights: Vec<String> = (1u8..)
            .zip(&path.contexts)
            .filter_map(|(number, context)| {
                let right = match path.right(number, hop) {
                    Right::None => return None,
                    Right::Read => "r",
                    Right::Write => "rw",
                };
                Some(format!("{}={right}", name(context.purpose, number)))
            })
            .collect();
        let rights = if rights.is_empty() { "nothing".to_owned() } else { rights.join(",") };
        let server = path.server.identity.short();
        let count = path.hops.len();
        (self.line)(format!("session to {server}: hop {hop} of {count} holds {rights}"));
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        let (head, bytes) = &mut self.passing[piece.direction as usize];
        *bytes.entry(piece.context).or_default() += piece.data.len();
        let purpose = self.granted.purpose(piece.context);
        if matches!(purpose, Purpose::RequestHead | Purpose::ResponseHead)
            && head.len() + piece.data.len() <= MAX_HEAD
        {
            head.extend_from_slice(piece.data);
        }
        Action::Pass
    }

    fn exchange(&mut self, direction: Direction, number: u64, _: bool) {
        let (head, bytes) = std::mem::take(&mut self.passing[direction as usize]);
        // A request that a middlebox has answered goes on without bytes, and so does the server's answer to it.
        if bytes.values().all(|bytes| *bytes == 0) {
            return;
        }
        let what = match direction {
            Direction::ToServer => "request",
            Direction::ToClient => "response",
        };
        let sizes: Vec<String> = bytes
            .iter()
            .map(|(context, bytes)| {
                format!("{} {bytes} B", name(self.granted.purpose(*context), *context))
            })
            .collect();
        let names = field_names(&head);
        let fields = if names.is_empty() { String::new() } else { format!("; fields {names}") };
        (self.line)(format!("{what} {number}: {}{fields}", sizes.join(", ")));
    }
}

/// The names of a head's fields; values may be secret.
fn field_names(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let names = text.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0));
    let plain = names.map(|name| name.chars().filter(|one| one.is_ascii_graphic()).collect());
    plain.collect::<Vec<String>>().join(", ")
}
