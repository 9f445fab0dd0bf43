//! Connections: pipelined requests, requests in any pieces, limits and counters.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levada_catalogue::http::Config;
use levada_catalogue::index::Options;
use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{
    Answer, Server, TIMEOUT, draft, draft_with, eventually, lenient_config, noise, read_all,
};

fn server() -> Server {
    let server = Server::start();
    server.publish(&draft("service/a", "1.0.0", r#"{"which":"first"}"#));
    server.publish(&draft("service/a", "2.0.0", r#"{"which":"second"}"#));
    server
}

const GET: &str = "GET /v1/objects/service/a/VERSION HTTP/1.1\r\nHost: h\r\n\r\n";
const LAST: &str =
    "GET /v1/objects/service/a/2.0.0 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// The bodies of pipelined responses.
fn bodies(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !bytes.is_empty() {
        let answer = Answer::parse(bytes);
        let length: usize = answer.field("content-length").unwrap().parse().unwrap();
        bodies.push(answer.body[..length].to_vec());
        bytes = &bytes[bytes.len() - answer.body.len() + length..];
    }
    bodies
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server();
    let mut requests = String::new();
    for minor in 1..=100 {
        let descriptor = format!(r#"{{"which":{minor}}}"#);
        server.publish(&draft("service/a", &format!("1.{minor}.0"), &descriptor));
        // The first is read from the store, the second is in the index.
        requests += &GET.replace("VERSION", &format!("1.{minor}.0"));
        requests += &GET.replace("VERSION", "2.0.0");
    }
    let answers = bodies(&server.raw((requests + LAST).as_bytes()));
    assert_eq!(answers.len(), 201);
    for (place, body) in answers.iter().enumerate() {
        let expected = if place % 2 == 0 && place < 200 {
            format!(r#"{{"which":{}}}"#, place / 2 + 1)
        } else {
            r#"{"which":"second"}"#.to_owned()
        };
        assert_eq!(body, expected.as_bytes(), "{place}");
    }
}

#[test]
fn pipelined_packages_are_complete() {
    let server = server();
    let content = noise(400_000);
    server.publish(&draft_with(&server, "runtime/r", "1.0.0", "image/png", &content));
    let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
    let mut requests = String::new();
    for range in 0..20 {
        requests += &format!("GET {path} HTTP/1.1\r\nHost: h\r\nRange: bytes={range}-\r\n\r\n");
        requests += &GET.replace("VERSION", "latest");
    }
    let answers = bodies(&server.raw((requests + LAST).as_bytes()));
    assert_eq!(answers.len(), 41);
    for range in 0..20 {
        assert!(answers[2 * range] == content[range..], "{range}");
        assert_eq!(answers[2 * range + 1], br#"{"which":"second"}"#);
    }
}

#[test]
fn accepts_a_request_byte_by_byte() {
    let server = server();
    let mut stream = server.connect();
    for byte in LAST.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(Answer::parse(&read_all(&mut stream)).status, 200);
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let server = server();
    for path in [
        "/v1/objects/service/a/1.0.0",
        "/v1/objects",
        "/v1/nothing",
        "/",
        "/page.css",
        "/.well-known/",
    ] {
        let get = server.get(path);
        let head = server.ask("HEAD", path, "");
        assert_eq!((get.status, head.body.len()), (head.status, 0), "{path}");
        for field in ["content-length", "content-type", "etag", "cache-control"] {
            assert_eq!(get.field(field), head.field(field), "{path} {field}");
        }
    }
}

#[test]
fn http_1_0_clients_are_answered() {
    let server = server();
    let path = "/v1/objects/service/a/2.0.0";
    let answer = Answer::parse(&server.raw(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()));
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    let keep = format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = server.raw((keep + &format!("GET {path} HTTP/1.0\r\n\r\n")).as_bytes());
    assert_eq!(Answer::parse(&answer).field("connection"), Some("keep-alive"));
    assert_eq!(bodies(&answer).len(), 2);
}

#[test]
fn options_lists_the_allowed_methods() {
    let server = server();
    for (target, allow) in [
        ("*", "GET, HEAD, OPTIONS"),
        ("/", "GET, HEAD, OPTIONS"),
        ("/v1/objects", "GET, HEAD, OPTIONS"),
        ("/.well-known/runtime/x", "GET, HEAD, POST, OPTIONS"),
    ] {
        let answer = server.ask(
            "OPTIONS",
            target,
            "Origin: http://o\r\nAccess-Control-Request-Method: GET\r\n",
        );
        assert_eq!((answer.status, answer.field("allow")), (204, Some(allow)), "{target}");
        // reTHINK's client sends its conditions with a Content-Type that needs a CORS preflight.
        assert_eq!(answer.field("access-control-allow-methods"), Some(allow));
        assert!(answer.field("access-control-allow-headers").unwrap().contains("Content-Type"));
        assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
        assert!(answer.field("content-length").is_none() && answer.body.is_empty());
    }
}

#[test]
fn a_connection_waits_while_all_slots_are_taken() {
    let config = Config { connections: 2, per_source: Some(2), ..lenient_config() };
    let server = Server::start_with(config, Options::default());
    // More than the kernel buffers.
    let content = vec![7; 30_000_000];
    server.publish(&draft_with(&server, "runtime/r", "1.0.0", "image/png", &content));
    let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
    let counters = server.site.counters();
    let [first, second] = [1, 2].map(|count| {
        let mut stream = server.connect();
        // A connection that is still reading its answer is not evicted.
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(counters.connections.load(Ordering::Relaxed), count);
        stream
    });
    let mut third = server.connect();
    third.write_all(b"GET /v1/objects HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "a third connection was served");
    third.set_read_timeout(Some(TIMEOUT)).unwrap();
    // It is served once another connection has closed.
    drop(first);
    assert_eq!(Answer::parse(&read_all(&mut third)).status, 200);
    drop(second);
    assert_eq!(server.get("/v1/objects").status, 200);
}

#[test]
fn the_longest_idle_connection_is_evicted_for_a_new_one() {
    let config = Config { connections: 4, per_source: Some(2), ..lenient_config() };
    let server = Server::start_with(config, Options::default());
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /page.css HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 20]).unwrap();
        // The server notes that a connection is idle after it has answered.
        eventually(|| server.site.busy() == 0);
    };
    let mut idle: Vec<_> = (0..2).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(ask);
    // This source may have two connections: the one that has been idle longer is closed.
    assert_eq!(server.get("/v1/objects").status, 200);
    let [mut first, mut second] = <[TcpStream; 2]>::try_from(idle).unwrap();
    read_all(&mut first);
    assert_eq!(server.site.evicted(), 1);
    second.write_all(LAST.as_bytes()).unwrap();
    let rest = read_all(&mut second);
    assert!(rest.windows(12).any(|bytes| bytes == b"HTTP/1.1 404"), "the second is served");
}

#[test]
fn answers_and_connections_are_counted() {
    let server = server();
    let mut received = 0;
    for path in ["/v1/objects", "/v1/nothing", "/"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        received += server.raw(request.as_bytes()).len() as u64;
    }
    let counters = server.site.counters();
    assert_eq!(counters.connections.load(Ordering::Relaxed), 3);
    assert_eq!(counters.answers[1].load(Ordering::Relaxed), 2);
    assert_eq!(counters.answers[3].load(Ordering::Relaxed), 1);
    // The server counts after sending, which may be after the client has received.
    eventually(|| counters.sent.load(Ordering::Relaxed) == received);
    eventually(|| counters.open.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_client_that_disconnects_early_does_not_affect_others() {
    let server = server();
    let content = noise(8_000_000);
    server.publish(&draft_with(&server, "runtime/r", "1.0.0", "image/png", &content));
    let path = format!("/v1/blobs/{}", digest_text(&sha256(&[&content])));
    for read in [0, 1, 100_000] {
        let mut stream = server.connect();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        let mut part = vec![0; read];
        stream.read_exact(&mut part).unwrap();
        drop(stream);
    }
    assert!(server.get(&path).body == content);
}

/// POSTs with each form of body.
const POSTS: [&str; 3] = [
    "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
    "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX: y\r\n\r\n",
    "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
];

#[test]
fn the_next_request_begins_after_the_body() {
    let server = server();
    let none = b"No hyperty instance found that meets the constraints {}".to_vec();
    let expected = [none.clone(), none, b"[]".to_vec(), br#"{"which":"second"}"#.to_vec()];
    let all = POSTS.concat() + LAST;
    assert_eq!(bodies(&server.raw(all.as_bytes())), expected);
    let mut stream = server.connect();
    for byte in all.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(bodies(&read_all(&mut stream)), expected);
}

#[test]
fn expect_100_continue_is_answered_unless_the_body_is_refused() {
    let server = server();
    let mut stream = server.connect();
    let head = "POST /.well-known/hyperty HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    let mut received = vec![0; interim.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received, interim.as_bytes());
    stream.write_all(b"{}").unwrap();
    Answer::parse(&read_all(&mut stream)).assert_text(404);
    // A body that is refused gets the final answer instead.
    for (path, length, status) in [("/v1/objects", 2, 405), ("/.well-known/hyperty", 70_000, 413)] {
        let head = head
            .replace("/.well-known/hyperty", path)
            .replace("Length: 2", &format!("Length: {length}"));
        let answer = Answer::parse(&server.raw(head.as_bytes()));
        assert_eq!((answer.status, answer.field("connection")), (status, Some("close")));
    }
}
