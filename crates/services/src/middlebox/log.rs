//! Logs what a middlebox holds, and what passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_contexts::{Action, Direction, Inspector, Path, Piece, Purpose, Right};

use super::Granted;

/// Takes a line of the log.
pub type Line = Arc<dyn Fn(String) + Send + Sync>;

/// Writes a line when a session begins, with the rights, and one for each message, with the names
/// of its fields and the bytes of each context.
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
        // A request that a middlebox has answered goes on without bytes, and so does the server's
        // answer to it.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use levada_contexts::{Context, Hop, Kem, Party};
    use levada_core::Identity;

    use super::*;

    /// A log, and its lines.
    fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = lines.clone();
        (Log::new(Arc::new(move |text| all.lock().unwrap().push(text))), lines)
    }

    /// The second of two middleboxes has these rights.
    fn path(contexts: &[(Purpose, Right)]) -> Path {
        let party = |byte| Party {
            identity: Identity::from_bytes([byte; 32]),
            address: "host.example:1".to_owned(),
        };
        let context = |(purpose, right): &(Purpose, Right)| Context {
            purpose: *purpose,
            pad: 0,
            rights: vec![Right::Write, *right],
        };
        Path {
            kem: Kem::X25519,
            server: party(9),
            hops: [2, 3].map(|byte| Hop { party: party(byte), resume: None }).to_vec(),
            contexts: contexts.iter().map(context).collect(),
        }
    }

    fn take(lines: &Mutex<Vec<String>>) -> Vec<String> {
        std::mem::take(&mut *lines.lock().unwrap())
    }

    fn piece(direction: Direction, context: u8, data: &[u8]) -> Piece<'_> {
        Piece { direction, context, data, end: true, origin: 0 }
    }

    #[test]
    fn a_session_begins_with_what_this_middlebox_holds_and_nothing_of_others() {
        let (mut log, lines) = log();
        let path = path(&[
            (Purpose::RequestHead, Right::Read),
            (Purpose::RequestBody, Right::None),
            (Purpose::ResponseBody, Right::Write),
            (Purpose::Other, Right::Read),
        ]);
        log.granted(&path, 2);
        let server = path.server.identity.short();
        let line = |rights: &str| vec![format!("session to {server}: hop 2 of 2 holds {rights}")];
        assert_eq!(take(&lines), line("request-head=r,response-body=rw,context 4=r"));
        log.granted(&self::path(&[(Purpose::RequestHead, Right::None)]), 2);
        assert_eq!(take(&lines), line("nothing"));
    }

    #[test]
    fn an_exchange_has_a_line_with_sizes_and_the_names_of_fields_without_values() {
        let (mut log, lines) = log();
        let rights = [
            (Purpose::RequestHead, Right::Read),
            (Purpose::RequestBody, Right::Read),
            (Purpose::ResponseHead, Right::Read),
        ];
        log.granted(&path(&rights), 2);
        take(&lines);
        let head = b"POST /secret\r\nauthorization: secret\r\nx-\x1b[31ma: secret\r\n";
        for part in head.chunks(20) {
            assert_eq!(log.record(piece(Direction::ToServer, 1, part)), Action::Pass);
        }
        log.record(piece(Direction::ToServer, 2, b"secret"));
        // The next answer is on its way at the same time.
        log.record(piece(Direction::ToClient, 3, b"200\r\nset-cookie: secret\r\n"));
        log.exchange(Direction::ToServer, 5, false);
        let request = format!(
            "request 5: request-head {} B, request-body 6 B; fields authorization, x-[31ma",
            head.len()
        );
        assert_eq!(take(&lines), [request]);
        log.exchange(Direction::ToClient, 5, true);
        assert_eq!(take(&lines), ["response 5: response-head 25 B; fields set-cookie"]);
        // What a middlebox has emptied has no line.
        log.record(piece(Direction::ToServer, 1, b""));
        log.exchange(Direction::ToServer, 6, false);
        log.exchange(Direction::ToClient, 6, false);
        assert!(take(&lines).is_empty());
    }

    #[test]
    fn a_long_head_is_counted_and_only_its_beginning_kept() {
        let (mut log, lines) = log();
        log.granted(&path(&[(Purpose::RequestHead, Right::Read)]), 2);
        take(&lines);
        log.record(piece(Direction::ToServer, 1, b"GET /\r\na: b\r\n"));
        for _ in 0..10 {
            log.record(piece(Direction::ToServer, 1, &[b'c'; MAX_HEAD]));
        }
        assert!(log.passing[0].0.len() <= MAX_HEAD);
        log.exchange(Direction::ToServer, 0, false);
        let bytes = 13 + 10 * MAX_HEAD;
        assert_eq!(take(&lines), [format!("request 0: request-head {bytes} B; fields a")]);
    }
}
