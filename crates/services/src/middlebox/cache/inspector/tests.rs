use std::sync::Mutex;

use levada_contexts::Right;

use super::*;
use crate::middlebox::Entry;

const STRONG: &str = "200\r\ncache-control: max-age=86400\r\n";
const PURPOSES: [Purpose; 4] =
    [Purpose::RequestHead, Purpose::RequestBody, Purpose::ResponseHead, Purpose::ResponseBody];

/// One session through a cache with all rights.
struct Session {
    cache: CacheInspector,
    log: Arc<Mutex<Vec<String>>>,
    requests: u64,
}

impl Session {
    fn new(cache: &Arc<Cache>) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let copy = log.clone();
        let write =
            Arc::new(move |entry: Entry| copy.lock().unwrap().push(entry.event.to_string()));
        let mut cache = CacheInspector::new(cache, SessionLog::new(1, write));
        cache.granted = Granted(PURPOSES.map(|purpose| (purpose, Right::Write)).into());
        let server = Identity::from_bytes([3; 32]);
        cache.server = Some(server);
        cache.realm = Some(Realm { server, realm: [7; 16] });
        Self { cache, log, requests: 0 }
    }

    fn record(&mut self, direction: Direction, context: u8, data: &str, end: bool) -> Action {
        let data = data.as_bytes();
        self.cache.record(Piece { direction, context, data, end, origin: 0 })
    }

    /// Sends a request; its own answer if the cache has one.
    fn request(&mut self, head: &str, body: &str) -> Option<String> {
        let emptied = self.record(Direction::ToServer, 1, head, true) != Action::Pass;
        if !body.is_empty() {
            let action = self.record(Direction::ToServer, 2, body, true);
            assert_eq!(action != Action::Pass, emptied);
        }
        let number = self.requests;
        self.requests += 1;
        self.cache.exchange(Direction::ToServer, number, false);
        if !emptied {
            return None;
        }
        let mut answer = Vec::new();
        loop {
            let part = self.cache.answer(number).unwrap();
            assert_eq!(part.context, if answer.is_empty() { 3 } else { 4 });
            answer.extend(part.data);
            if part.last {
                break;
            }
        }
        // What the server sends for it.
        assert_eq!(self.record(Direction::ToClient, 3, "", true), Action::Pass);
        self.cache.exchange(Direction::ToClient, number, false);
        Some(String::from_utf8(answer).unwrap())
    }

    /// The server's answer to the last request; the last line of the log.
    fn answer(&mut self, head: &str, body: &str, endorsed: bool) -> String {
        self.record(Direction::ToClient, 3, head, true);
        for part in body.as_bytes().chunks(16_000) {
            self.record(Direction::ToClient, 4, std::str::from_utf8(part).unwrap(), false);
        }
        self.cache.exchange(Direction::ToClient, self.requests - 1, endorsed);
        self.log.lock().unwrap().last().cloned().unwrap()
    }
}

#[test]
fn an_endorsed_answer_is_given_again_also_in_another_session() {
    let cache = Cache::new(1 << 20);
    let mut session = Session::new(&cache);
    assert_eq!(session.request("GET /\r\n", ""), None);
    let body = "0123456789".repeat(13_000);
    let stored = session.answer(STRONG, &body, true);
    assert!(stored.starts_with("cache: response 0: stored, 130000 B for "), "{stored}");
    let mut other = Session::new(&cache);
    for session in [&mut session, &mut other] {
        for _ in 0..2 {
            let answer = session.request("GET /\r\n", "").unwrap();
            let head = answer.strip_suffix(&body).unwrap();
            assert!(head.contains("\r\nage: ") && head.contains("\r\ndate: "), "{head}");
        }
        // Between hits, others still go to the server and are stored.
        assert_eq!(session.request("GET /other\r\n", ""), None);
        let answer = session.answer(STRONG, "", true);
        assert!(answer.contains("stored, 0 B"), "{answer}");
        assert!(session.request("GET /other\r\n", "").unwrap().starts_with(STRONG));
        session.cache.cache.invalidate(
            session.cache.realm.unwrap(),
            &Target { host: None, target: "/other".to_owned() },
        );
    }
}

#[test]
fn what_must_not_be_stored_is_not() {
    for (head, body, answer, endorsed, reason) in [
        ("GET /\r\n", "", STRONG, false, "has not endorsed"),
        ("GET /\r\n", "body", STRONG, true, "its request has a body"),
        ("GET http://a/\r\n", "", STRONG, true, "its request cannot be read"),
        ("GET /\r\nauthorization: a\r\n", "", STRONG, true, "Authorization"),
        ("POST /\r\n", "", STRONG, true, "the method is not GET"),
        ("GET /\r\n", "", "200\r\n", true, "nothing says how long"),
        ("GET /\r\n", "", "200\r\na", true, "its head cannot be read"),
    ] {
        let mut session = Session::new(&Cache::new(1 << 20));
        assert_eq!(session.request(head, body), None);
        let line = session.answer(answer, "body", endorsed);
        assert!(line.contains("not stored") && line.contains(reason), "{head}: {line}");
        assert_eq!(session.request(head, body), None, "{head}");
    }
    let mut session = Session::new(&Cache::new(1 << 20));
    session.request("GET /\r\n", "");
    let line = session.answer(STRONG, &"0".repeat((1 << 17) + 1), true);
    assert!(line.contains("longer than an eighth"), "{line}");
}

/// Requests may be sent before earlier ones are answered; the server's empty answers to those that
/// were answered here come later.
#[test]
fn answers_belong_to_their_requests() {
    let mut session = Session::new(&Cache::new(1 << 20));
    session.request("GET /\r\n", "");
    session.answer(STRONG, "stored", true);
    // 1 is answered here; 2 is sent on before the server's empty answer to 1.
    let hit = session.record(Direction::ToServer, 1, "GET /\r\n", true);
    assert_eq!(hit, Action::Replace(Vec::new()));
    session.cache.exchange(Direction::ToServer, 1, false);
    while !session.cache.answer(1).unwrap().last {}
    session.record(Direction::ToServer, 1, "GET /two\r\n", true);
    session.cache.exchange(Direction::ToServer, 2, false);
    session.record(Direction::ToClient, 3, "", true);
    session.cache.exchange(Direction::ToClient, 1, false);
    session.requests = 3;
    assert!(session.answer(STRONG, "two", true).starts_with("cache: response 2: stored, 3 B"));
    assert!(session.request("GET /two\r\n", "").unwrap().ends_with("\r\ntwo"));
}

#[test]
fn a_request_that_changes_something_makes_stored_answers_invalid() {
    for (status, kept) in [("204\r\n", false), ("500\r\n", true)] {
        let mut session = Session::new(&Cache::new(1 << 20));
        session.request("GET /\r\n", "");
        session.answer(STRONG, "stored", true);
        session.request("POST /\r\n", "change");
        session.answer(status, "", false);
        assert_eq!(session.request("GET /\r\n", "").is_some(), kept);
    }
}

#[test]
fn a_request_for_stored_answers_only_is_answered_in_any_case() {
    let mut session = Session::new(&Cache::new(1 << 20));
    let head = "GET /\r\ncache-control: only-if-cached\r\n";
    assert!(session.request(head, "").unwrap().starts_with("504\r\n"));
    for field in ["range: bytes=0-1", "if-none-match: \"a\"", "authorization: a"] {
        let answer = session.request(&format!("{head}{field}\r\n"), "");
        assert!(answer.unwrap().starts_with("504\r\n"), "{field}");
    }
    session.request("GET /\r\n", "");
    session.answer(STRONG, "stored", true);
    // With a body, too: a request that is answered here is emptied.
    assert!(session.request(head, "body").unwrap().ends_with("\r\nstored"));
}

#[test]
fn fields_for_one_connection_to_a_proxy_are_not_stored() {
    let mut session = Session::new(&Cache::new(1 << 20));
    session.request("GET /\r\n", "");
    let fields = "Proxy-Authenticate: Basic\r\nProxy-Authentication-Info: a\r\nx-kept: a\r\n";
    session.answer(&format!("{STRONG}{fields}"), "stored", true);
    let hit = session.request("GET /\r\n", "").unwrap();
    assert!(hit.contains("x-kept: a\r\n") && !hit.contains("proxy-auth"), "{hit}");
}

#[test]
fn a_head_that_has_passed_in_part_is_not_answered_here() {
    let mut session = Session::new(&Cache::new(1 << 20));
    session.request("GET /\r\n", "");
    session.answer(STRONG, "stored", true);
    assert_eq!(session.record(Direction::ToServer, 1, "GET", false), Action::Pass);
    assert_eq!(session.record(Direction::ToServer, 1, " /\r\n", true), Action::Pass);
    session.cache.exchange(Direction::ToServer, 1, false);
    session.requests = 2;
    assert!(session.answer(STRONG, "again", true).contains("stored, 5 B"));
}

#[test]
fn an_answer_that_left_its_origin_before_a_change_is_not_stored() {
    let cache = Cache::new(1 << 20);
    let [mut reader, mut writer] = [(); 2].map(|()| Session::new(&cache));
    reader.request("GET /\r\n", "");
    writer.request("POST /\r\n", "");
    // The head is enough: the rest of the answer may never come.
    writer.record(Direction::ToClient, 3, "204\r\n", true);
    let line = reader.answer(STRONG, "old", true);
    assert!(line.contains("not stored: a request that is not safe"), "{line}");
    reader.request("GET /\r\n", "");
    assert!(reader.answer(STRONG, "new", true).contains("stored, 3 B"));
    assert!(reader.request("GET /\r\n", "").is_some());
    writer.request("POST /other\r\n", "");
    writer.record(Direction::ToClient, 3, "204\r\n", true);
    assert!(reader.request("GET /\r\n", "").is_some());
}

#[test]
fn a_late_answer_does_not_replace_one_to_a_later_request() {
    let cache = Cache::new(1 << 20);
    let [mut slow, mut quick] = [(); 2].map(|()| Session::new(&cache));
    slow.request("GET /\r\n", "");
    quick.request("GET /\r\n", "");
    assert!(quick.answer(STRONG, "new", true).contains("stored"));
    let line = slow.answer(STRONG, "old", true);
    assert!(line.contains("not stored: the answer to a later request"), "{line}");
    assert!(slow.request("GET /\r\n", "").unwrap().ends_with("\r\nnew"));
}

#[test]
fn an_answer_that_depends_on_too_many_fields_is_not_stored() {
    let names: Vec<String> = (0..33).map(|number| format!("a{number}")).collect();
    for (names, stored) in [(&names[..32], true), (&names[..], false)] {
        let mut session = Session::new(&Cache::new(1 << 20));
        session.request("GET /\r\n", "");
        let line = session.answer(&format!("{STRONG}vary: {}\r\n", names.join(",")), "", true);
        assert_eq!(!line.contains("not stored"), stored, "{line}");
    }
}
