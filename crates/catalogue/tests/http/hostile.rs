//! Hostile requests: each gets an answer with a reason, and the next client is served as before.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use levada_catalogue::http::{Config, Hosts, Timeouts};
use levada_catalogue::index::Options;
use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{Answer, Server, draft, draft_with, eventually, noise, read_all};

fn status(server: &Server, request: &[u8]) -> u16 {
    Answer::parse(&server.raw(request)).status
}

#[test]
fn no_path_escapes_the_catalogue() {
    let server = Server::start();
    server.publish(&draft("service/a", "1.0.0", "{}"));
    for path in [
        "/../../../../etc/passwd",
        "/.well-known/../catalogue.db",
        "/.well-known/runtime/../../../catalogue.db",
        "/.well-known/runtime/..%2f..%2fcatalogue.db",
        "/.well-known/%2e%2e/catalogue.db",
        "/v1/objects/service/..%2Fa",
        "/v1/objects/service/%2e%2e",
        "/v1/objects/service/a%00",
        "/v1/objects/service/a%2f1.0.0",
        "/v1/objects/service/./a",
        "/v1/objects//service/a",
        "/v1/blobs/..%2f..%2fcatalogue.db",
        "/v1/blobs/sha256:../../catalogue.db",
        "/objects/service/..%2f",
        "/objects/../catalogue.db",
        "/page.css/../page.js",
        "//",
        "/%",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        assert!(!answer.text().contains("SQLite"), "{path}");
    }
    for path in [
        "/v1/objects/service/%",
        "/v1/objects/service/%zz",
        "/v1/objects/service/%ff",
        "/v1/%c0%af",
    ] {
        server.get(path).assert_problem(400);
    }
}

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    let server = Server::start();
    let long = "x".repeat(8 * 1024);
    for (request, expected) in [
        ("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 400),
        (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{}Host: h\r\n\r\n", "X: y\r\n".repeat(64)), 431),
        ("GET / HTTP/3.0\r\nHost: h\r\n\r\n".to_owned(), 505),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n".to_owned(), 400),
        ("GET x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 400),
        ("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1}\u{0}ssl".to_owned(), 400),
    ] {
        assert_eq!(
            status(&server, request.as_bytes()),
            expected,
            "{:?}",
            &request[..request.len().min(60)]
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "get"] {
        let answer = server.ask(method, "/v1/objects", "");
        answer.assert_problem(405);
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"), "{method}");
    }
    let answer = server.ask("PUT", "/.well-known/hyperty", "");
    answer.assert_text(405);
    assert_eq!(answer.field("allow"), Some("GET, HEAD, POST, OPTIONS"));
}

#[test]
fn a_refused_body_is_never_parsed_as_a_request() {
    let server = Server::start();
    let hidden = "GET /v1/objects HTTP/1.1\r\nHost: h\r\n\r\n";
    for (method, fields, expected) in [
        ("GET", format!("Content-Length: {}\r\n", hidden.len()), 413),
        ("POST", format!("Content-Length: {}\r\n", hidden.len()), 405),
        ("GET", "Transfer-Encoding: chunked\r\n".to_owned(), 400),
        ("POST", format!("Content-Length: 2\r\nContent-Length: {}\r\n", hidden.len()), 400),
        ("POST", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n".to_owned(), 400),
        ("POST", "Transfer-Encoding: gzip, chunked\r\n".to_owned(), 400),
        ("GET", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n".to_owned(), 400),
        ("GET", "Content-Length: 1e1\r\n".to_owned(), 400),
        ("OPTIONS", "Content-Length: 99999999999999999999999\r\n".to_owned(), 413),
    ] {
        let request = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n{hidden}");
        let answer = Answer::parse(&server.raw(request.as_bytes()));
        answer.assert_problem(expected);
        assert_eq!(answer.field("connection"), Some("close"));
        let length: usize = answer.field("content-length").unwrap().parse().unwrap();
        assert_eq!(length, answer.body.len(), "a second answer follows");
    }
}

#[test]
fn a_body_under_well_known_is_limited_in_length_and_time() {
    let server = short_timeouts();
    let ask = |fields: &str, body: &str| {
        let head = "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\n";
        retry(&server, format!("{head}{fields}\r\n{body}").as_bytes())
    };
    ask("Content-Length: 65537\r\n", "").assert_text(413);
    ask("Transfer-Encoding: chunked\r\n", "10001\r\n").assert_text(413);
    ask("Transfer-Encoding: chunked\r\n", "2\r\n{}x").assert_text(400);
    // A body that is incomplete, and one that arrives a byte at a time.
    ask("Content-Length: 2\r\n", "{").assert_text(408);
    let mut stream = server.connect();
    let head = "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n";
    let _ = stream.write_all(head.as_bytes());
    eventually(|| stream.write_all(b"x").is_err());
}

#[test]
fn the_answer_arrives_although_the_body_is_not_read() {
    let server = Server::start();
    let mut request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\n".to_vec();
    request.resize(request.len() + 50_000, b'x');
    Answer::parse(&server.raw(&request)).assert_problem(405);
}

#[test]
fn only_configured_hosts_are_served() {
    let hosts = Hosts::only(&["good.example".to_owned()]).unwrap();
    let server = Server::start_with(Config { hosts, ..Config::default() }, Options::default());
    let ask = |host: &str| {
        status(
            &server,
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    };
    assert_eq!((ask("good.example"), ask("GOOD.example:5383")), (200, 200));
    assert_eq!((ask("evil.example"), ask("127.0.0.1")), (400, 400));
    let forwarded = b"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: good.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&server, forwarded), 400);
    assert_eq!(status(&server, b"GET / HTTP/1.0\r\n\r\n"), 400);
}

/// A server with timeouts of 1 and 2 seconds, so that they expire within the test.
fn short_timeouts() -> Server {
    let timeouts = Timeouts {
        head: Duration::from_secs(1),
        idle: Duration::from_secs(2),
        stall: Duration::from_secs(1),
        ..Timeouts::default()
    };
    Server::start_with(Config { timeouts, ..Config::default() }, Options::default())
}

/// The answer of a server with short timeouts. The request is repeated if this process was too slow
/// to send it.
fn retry(server: &Server, request: &[u8]) -> Answer {
    let mut bytes = Vec::new();
    eventually(|| {
        let mut stream = server.connect();
        bytes.clear();
        let _ = stream.write_all(request);
        let _ = stream.read_to_end(&mut bytes);
        !bytes.is_empty()
    });
    Answer::parse(&bytes)
}

#[test]
fn an_incomplete_head_times_out() {
    let server = short_timeouts();
    retry(&server, b"GET / HTTP/1.1\r\nHost: ").assert_problem(408);
    // Sending a byte from time to time does not extend the timeout.
    let mut stream = server.connect();
    eventually(|| stream.write_all(b"G").is_err());
}

#[test]
fn an_idle_client_times_out() {
    let server = short_timeouts();
    assert!(read_all(&mut server.connect()).is_empty());
    // The answer, and then the end of the connection without another request.
    assert_eq!(retry(&server, b"GET /page.css HTTP/1.1\r\nHost: h\r\n\r\n").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let server = short_timeouts();
    let content = noise(30_000_000);
    server.publish(&draft_with(&server, "runtime/r", "1.0.0", "image/png", &content));
    let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut stream = server.connect();
    eventually(|| {
        // Repeated if this process was too slow to send it.
        stream = server.connect();
        stream.write_all(request.as_bytes()).is_ok() && stream.read_exact(&mut [0]).is_ok()
    });
    // The server has closed the connection when its slot is free.
    eventually(|| server.site.counters().open.load(Ordering::Relaxed) == 0);
    // Buffered bytes still arrive, but not all of the content.
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    assert!(all.len() < content.len());
}

#[test]
fn published_text_is_never_markup() {
    let server = Server::start();
    let evil = "<script>alert(1)</script>\"'&";
    let name = evil.replace('/', "");
    let descriptor = serde_json::json!({"description": evil, "x": "</pre><script>"}).to_string();
    server.publish(&draft(&format!("service/{name}"), "1.0.0", &descriptor));
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for path in ["/".to_owned(), format!("/?q={encoded}"), format!("/objects/service/{encoded}")] {
        let page = server.get(&path);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text().contains("&lt;script&gt;alert(1)"), "{path}");
        assert!(!page.text().contains("<script>"), "{path}");
        let policy = page.field("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
    }
}

#[test]
fn a_host_cannot_inject_into_a_command() {
    let server = Server::start();
    server.publish(&draft("service/a", "1.0.0", "{}"));
    for host in ["$(reboot)", "a';b", "a&b", "a%24b"] {
        let request =
            format!("GET /objects/service/a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let page = Answer::parse(&server.raw(request.as_bytes()));
        assert!(
            page.status == 200 && page.text().contains("http://HOST/v1/objects/service/a/1.0.0"),
            "{host}"
        );
    }
}
