//! `/v1/watch`: changes as server-sent events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use levada_catalogue::http::{Config, Timeouts};
use levada_catalogue::index::Options;

use super::server::{Server, TIMEOUT, draft, eventually};

/// A client of `/v1/watch`.
struct Watcher {
    lines: BufReader<TcpStream>,
}

impl Watcher {
    fn start(server: &Server, query: &str, fields: &str) -> Self {
        let mut stream = server.connect();
        let request = format!("GET /v1/watch{query} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut watcher = Self { lines: BufReader::new(stream) };
        assert_eq!(watcher.line(), "HTTP/1.1 200 OK");
        let fields: Vec<_> =
            std::iter::from_fn(|| Some(watcher.line()).filter(|line| !line.is_empty())).collect();
        assert!(fields.contains(&"Content-Type: text/event-stream".to_owned()), "{fields:?}");
        assert_eq!(watcher.line(), "retry: 2000");
        watcher
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the watch has ended");
        line.trim_end().to_owned()
    }

    /// The next event: its id, its name, and the object's name and version.
    fn event(&mut self) -> (u64, String, String) {
        let until = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < until, "there is no event");
            let fields: Vec<_> =
                std::iter::from_fn(|| Some(self.line()).filter(|line| !line.is_empty())).collect();
            let field = |name: &str| {
                fields.iter().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
            };
            let (Some(event), Some(data)) = (field("event: "), field("data: ")) else { continue };
            let data: serde_json::Value = serde_json::from_str(&data).unwrap();
            let id = field("id: ").unwrap().parse().unwrap();
            assert_eq!(
                (data["revision"].as_u64(), data["event"].as_str()),
                (Some(id), Some(event.as_str()))
            );
            return (
                id,
                event,
                format!("{} {}", data["name"].as_str().unwrap(), data["version"].as_str().unwrap()),
            );
        }
    }
}

fn event(id: u64, name: &str, object: &str) -> (u64, String, String) {
    (id, name.to_owned(), object.to_owned())
}

#[test]
fn streams_changes_from_now_and_from_a_revision() {
    let server = Server::start();
    server.publish(&draft("service/a", "1.0.0", "{}"));
    let mut from_now = Watcher::start(&server, "", "");
    let mut from_start = Watcher::start(&server, "?after=0", "");
    assert_eq!(from_start.event(), event(1, "published", "a 1.0.0"));
    server.publish(&draft("service/b", "1.0.0", "{}"));
    server.yank("service/a", "1.0.0");
    for watcher in [&mut from_now, &mut from_start] {
        assert_eq!(watcher.event(), event(2, "published", "b 1.0.0"));
        assert_eq!(watcher.event(), event(3, "yanked", "a 1.0.0"));
    }
    drop(from_start);
    server.publish(&draft("service/c", "1.0.0", "{}"));
    // `Last-Event-ID` takes precedence over `after`.
    let mut again = Watcher::start(&server, "?after=0", "Last-Event-ID: 2\r\n");
    assert_eq!(again.event(), event(3, "yanked", "a 1.0.0"));
    assert_eq!(again.event(), event(4, "published", "c 1.0.0"));
}

#[test]
fn filters_by_kind_and_prefix() {
    let server = Server::start();
    let mut watcher = Watcher::start(&server, "?kind=service&prefix=a", "");
    for key in ["service/b", "hyperty/a", "service/ab"] {
        server.publish(&draft(key, "1.0.0", "{}"));
    }
    assert_eq!(watcher.event(), event(3, "published", "ab 1.0.0"));
}

#[test]
fn many_changes_arrive_in_order() {
    let server = Server::start();
    let mut watcher = Watcher::start(&server, "?after=0", "");
    for number in 0..1000 {
        server.publish(&draft(&format!("service/s{number}"), "1.0.0", "{}"));
    }
    for number in 0..1000 {
        assert_eq!(watcher.event(), event(number + 1, "published", &format!("s{number} 1.0.0")));
    }
    let mut late = Watcher::start(&server, "?after=0", "");
    for number in 1..=1000 {
        assert_eq!(late.event().0, number);
    }
}

#[test]
fn an_idle_watch_gets_the_current_revision() {
    let timeouts = Timeouts { keepalive: Duration::from_millis(50), ..Timeouts::default() };
    let server = Server::start_with(Config { timeouts, ..Config::default() }, Options::default());
    let mut watcher = Watcher::start(&server, "?kind=runtime", "");
    server.publish(&draft("service/a", "1.0.0", "{}"));
    // A change that the filter drops still advances the event id.
    eventually(|| watcher.line() == "id: 1");
}

#[test]
fn watches_are_limited_and_invalid_ones_refused() {
    // Of two connections, one may be a watch.
    let one_watch = Config { watches: 1, ..Config::default() };
    let two_connections = Config { connections: 2, ..Config::default() };
    for config in [one_watch, two_connections] {
        let server = Server::start_with(config, Options::default());
        server.get("/v1/watch?after=7").assert_problem(404);
        server.ask("GET", "/v1/watch", "Last-Event-ID: x\r\n").assert_problem(400);
        let head = server.ask("HEAD", "/v1/watch", "");
        assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
        let first = Watcher::start(&server, "", "");
        let answer = server.get("/v1/watch");
        answer.assert_problem(503);
        assert_eq!(answer.field("retry-after"), Some("1"));
        drop(first);
        // The slot is free once the server has noticed the disconnect.
        eventually(|| server.ask("HEAD", "/v1/watch", "").status != 503);
    }
}
