//! The log of a middlebox: what it holds, and what passes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use levada_contexts::{Action, Direction, Inspector, Path, Piece, Purpose, Right};
use serde::{Serialize, Serializer};

use super::Granted;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The number of the session since the start of the middlebox.
    pub session: u64,
    /// What happened in it.
    #[serde(flatten)]
    pub event: Event,
}

/// What a line reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The session has begun.
    Session {
        /// The source of its connection: the client, or the middlebox before this one.
        source: IpAddr,
        /// The node at its end.
        server: String,
        /// The number of this middlebox on the path, from 1.
        hop: u8,
        /// The number of middleboxes on the path.
        hops: usize,
        /// The rights of this middlebox, by context.
        #[serde(serialize_with = "as_map")]
        rights: Vec<(String, &'static str)>,
    },
    /// A request has passed.
    Request {
        /// The number of the exchange in its session.
        exchange: u64,
        /// Its method, if this middlebox may read the head.
        method: Option<String>,
        /// Its target, in the same case.
        target: Option<String>,
        /// The bytes of each context.
        #[serde(serialize_with = "as_map")]
        bytes: Vec<(String, usize)>,
        /// The names of its fields.
        fields: Vec<String>,
    },
    /// A response has passed.
    Response {
        /// The number of the exchange in its session.
        exchange: u64,
        /// Its status, if this middlebox may read the head.
        status: Option<u16>,
        /// The bytes of each context.
        #[serde(serialize_with = "as_map")]
        bytes: Vec<(String, usize)>,
        /// The names of its fields.
        fields: Vec<String>,
    },
    /// A plug-in reports something.
    Note {
        /// The report.
        text: String,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}: {}", self.session, self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { source, server, hop, hops, rights } => {
                let rights = listed(rights, "=", "");
                let rights = if rights.is_empty() { "nothing" } else { &rights };
                write!(f, "from {source} to {server}: hop {hop} of {hops} holds {rights}")
            }
            Self::Request { exchange, method, target, bytes, fields } => {
                write!(f, "request {exchange}: ")?;
                if let (Some(method), Some(target)) = (method, target) {
                    write!(f, "{method} {target}; ")?;
                }
                write_sizes(f, bytes, fields)
            }
            Self::Response { exchange, status, bytes, fields } => {
                write!(f, "response {exchange}: ")?;
                if let Some(status) = status {
                    write!(f, "{status}; ")?;
                }
                write_sizes(f, bytes, fields)
            }
            Self::Note { text } => f.write_str(text),
        }
    }
}

/// Serializes named values as a map, in their order.
fn as_map<S: Serializer>(
    values: &[(String, impl Serialize)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(name, value)| (name, value)))
}

fn listed(values: &[(String, impl fmt::Display)], between: &str, unit: &str) -> String {
    let all = values.iter().map(|(name, value)| format!("{name}{between}{value}{unit}"));
    all.collect::<Vec<_>>().join(if unit.is_empty() { "," } else { ", " })
}

fn write_sizes(
    f: &mut fmt::Formatter<'_>,
    bytes: &[(String, usize)],
    fields: &[String],
) -> fmt::Result {
    f.write_str(&listed(bytes, " ", " B"))?;
    if fields.is_empty() { Ok(()) } else { write!(f, "; fields {}", fields.join(", ")) }
}

/// Takes the lines of the log of all sessions.
pub type WriteEntry = Arc<dyn Fn(Entry) + Send + Sync>;

/// The log of one session.
#[derive(Clone)]
pub struct SessionLog {
    session: u64,
    write: WriteEntry,
}

impl SessionLog {
    /// The log of the session with this number.
    pub fn new(session: u64, write: WriteEntry) -> Self {
        Self { session, write }
    }

    /// Writes a line.
    pub fn event(&self, event: Event) {
        (self.write)(Entry { session: self.session, event });
    }

    /// Writes the report of a plug-in.
    pub fn note(&self, text: String) {
        self.event(Event::Note { text });
    }
}

/// Writes a line when a session begins, with the rights, and one for each message: its first line,
/// the names of its fields, and the bytes of each context.
pub struct Log {
    log: SessionLog,
    source: IpAddr,
    granted: Granted,
    /// By direction: the head, and the bytes of each context.
    passing: [(Vec<u8>, BTreeMap<u8, usize>); 2],
}

/// The longest head that is kept for the log, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// The longest target in the log, in characters.
const MAX_TARGET: usize = 2048;

impl Log {
    /// A log of a session whose connection is from `source`.
    pub fn new(log: SessionLog, source: IpAddr) -> Self {
        Self { log, source, granted: Granted::default(), passing: Default::default() }
    }

    /// The bytes by the name of the context.
    fn named(&self, bytes: &BTreeMap<u8, usize>) -> Vec<(String, usize)> {
        let named = bytes
            .iter()
            .map(|(context, bytes)| (name(self.granted.purpose(*context), *context), *bytes));
        named.collect()
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
        let rights = (1u8..).zip(&path.contexts).filter_map(|(number, context)| {
            let right = match path.right(number, hop) {
                Right::None => return None,
                Right::Read => "r",
                Right::Write => "rw",
            };
            Some((name(context.purpose, number), right))
        });
        self.log.event(Event::Session {
            source: self.source,
            server: path.server.identity.to_string(),
            hop,
            hops: path.hops.len(),
            rights: rights.collect(),
        });
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
        let head = String::from_utf8_lossy(&head);
        let first = head.lines().next().filter(|line| !line.is_empty());
        let bytes = self.named(&bytes);
        let fields = field_names(&head);
        self.log.event(match direction {
            Direction::ToServer => {
                let parts = first.and_then(|line| line.split_once(' '));
                let method = parts.map(|(method, _)| method.to_owned());
                let target = parts.map(|(_, target)| target.chars().take(MAX_TARGET).collect());
                Event::Request { exchange: number, method, target, bytes, fields }
            }
            Direction::ToClient => {
                let status = first.and_then(|line| line.split(' ').next()?.parse().ok());
                Event::Response { exchange: number, status, bytes, fields }
            }
        });
    }
}

/// The names of a head's fields; values may be secret.
fn field_names(head: &str) -> Vec<String> {
    let names = head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0));
    names.map(|name| name.chars().filter(char::is_ascii_graphic).collect()).collect()
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
        let write = Arc::new(move |entry: Entry| all.lock().unwrap().push(entry.to_string()));
        (Log::new(SessionLog::new(3, write), IpAddr::from([192, 0, 2, 1])), lines)
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
        let line = |rights: &str| {
            let server = path.server.identity;
            vec![format!("session 3: from 192.0.2.1 to {server}: hop 2 of 2 holds {rights}")]
        };
        assert_eq!(take(&lines), line("request-head=r,response-body=rw,context 4=r"));
        log.granted(&self::path(&[(Purpose::RequestHead, Right::None)]), 2);
        assert_eq!(take(&lines), line("nothing"));
    }

    #[test]
    fn an_exchange_has_its_first_line_sizes_and_the_names_of_fields_without_values() {
        let (mut log, lines) = log();
        let rights = [
            (Purpose::RequestHead, Right::Read),
            (Purpose::RequestBody, Right::Read),
            (Purpose::ResponseHead, Right::Read),
        ];
        log.granted(&path(&rights), 2);
        take(&lines);
        let head = b"POST /path?a=b\r\nauthorization: secret\r\nx-\x1b[31ma: secret\r\n";
        for part in head.chunks(20) {
            assert_eq!(log.record(piece(Direction::ToServer, 1, part)), Action::Pass);
        }
        log.record(piece(Direction::ToServer, 2, b"secret"));
        // The next answer is on its way at the same time.
        log.record(piece(Direction::ToClient, 3, b"200\r\nset-cookie: secret\r\n"));
        log.exchange(Direction::ToServer, 5, false);
        let request = format!(
            "session 3: request 5: POST /path?a=b; request-head {} B, request-body 6 B; \
             fields authorization, x-[31ma",
            head.len()
        );
        assert_eq!(take(&lines), [request]);
        log.exchange(Direction::ToClient, 5, true);
        assert_eq!(
            take(&lines),
            ["session 3: response 5: 200; response-head 25 B; fields set-cookie"]
        );
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
        assert_eq!(
            take(&lines),
            [format!("session 3: request 0: GET /; request-head {bytes} B; fields a")]
        );
    }
    #[test]
    fn without_the_head_a_line_has_sizes_only() {
        let (mut log, lines) = log();
        log.granted(
            &path(&[(Purpose::RequestHead, Right::None), (Purpose::Other, Right::Read)]),
            2,
        );
        take(&lines);
        log.record(piece(Direction::ToServer, 2, b"GET /\r\na: b\r\n"));
        log.exchange(Direction::ToServer, 0, false);
        assert_eq!(take(&lines), ["session 3: request 0: context 2 13 B"]);
    }

    #[test]
    fn an_entry_is_one_object_in_json() {
        let event = Event::Response {
            exchange: 1,
            status: Some(304),
            bytes: vec![("response-head".to_owned(), 9)],
            fields: vec!["etag".to_owned()],
        };
        let text = serde_json::to_string(&Entry { session: 7, event }).unwrap();
        let expected = "{\"session\":7,\"event\":\"response\",\"exchange\":1,\"status\":304,\
                        \"bytes\":{\"response-head\":9},\"fields\":[\"etag\"]}";
        assert_eq!(text, expected);
    }
}
