//! Request smuggling and response splitting: requests that two servers may read differently. Each
//! is sent by a raw client; the origin must never get two requests out of one, nor a head that can
//! be read in two ways.

use super::origin::{GZIP, RAW, RawClient, Recorded, host_port};
use super::{Parties, Started};
use crate::contexts::curl;

/// A name, and a request in which `{host}` stands for the value of Host. The second request in it
/// must not reach the origin.
const ATTACKS: &[(&str, &str)] = &[
    (
        "CL.TE",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nContent-Length: 46\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE.CL",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n\
         5\r\nabcde\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE.TE, the last one unknown",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE.TE, the first one unknown",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE with a coding in front",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: identity, chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE that is no chunked",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE with white space before the colon",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding : chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE in HTTP/1.0",
        "POST /attack HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "TE by obs-fold",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding:\r\n chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a field by obs-fold",
        "GET /attack HTTP/1.1\r\nHost: {host}\r\nX-A: b\r\n GET /smuggled HTTP/1.1\r\n\r\n",
    ),
    (
        "TE behind a bare LF",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nX-A: b\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a length behind a bare LF",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nX-A: b\nContent-Length: 40\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nX-Header: four\r\n\r\n",
    ),
    (
        "a second length behind a bare LF",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nX-A: b\nContent-Length: 0\r\n\r\n\
         abcdeGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a field behind a bare CR",
        "GET /attack HTTP/1.1\r\nHost: {host}\r\nX-A: b\rContent-Length: 40\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: other\r\n\r\n",
    ),
    (
        "two lengths",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "two lengths in one field",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0, 44\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a length with a sign",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nContent-Length: +0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    ("an absolute target", "GET http://other.test/smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    ("two Hosts", "GET /smuggled HTTP/1.1\r\nHost: {host}\r\nHost: other.test\r\n\r\n"),
    (
        "a Host of others first",
        "GET /smuggled HTTP/1.1\r\nHost: other.test\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a chunk size that overflows",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n\
         10000000000000000\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "a chunk extension with a bare LF",
        "POST /attack HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n\
         0;a\n\r\nGET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ),
    (
        "an upgrade",
        "GET /smuggled HTTP/1.1\r\nHost: {host}\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ),
];

#[test]
fn no_request_reaches_the_origin_as_two() {
    let parties = Parties::new();
    let node = parties.up("allow = 'request-head=rw'", false);
    let direct = parties.http(&node, &[]);
    let (_middlebox, via) = parties.middlebox(&node, "request-head=rw");
    let through = parties.http(&node, &["--via", &via]);
    for http in [&direct, &through] {
        for (name, attack) in ATTACKS {
            attempt(&parties, http, name, attack);
        }
        // Another server on the way may not take it for a field: then the two disagree about what
        // follows.
        let mut client = RawClient::new(&http.address);
        let host = host_port(&http.address);
        client.send(format!(
            "POST /end HTTP/1.1\r\nHost: {host}\r\nX-A: b\nContent-Length: 1\r\n\r\na"
        ));
        assert!(client.read_to_end().contains("connection: close\r\n"));
        // The sessions still work.
        let mut client = RawClient::new(&http.address);
        client.send(end(http));
        assert!(client.read_to_end().contains("the page"));
        parties.origin.take();
    }
}

#[test]
fn no_response_reaches_the_client_as_two() {
    let parties = Parties::new();
    let node = parties.up("allow = 'response-head=rw'", false);
    let direct = parties.http(&node, &[]);
    let (_middlebox, via) = parties.middlebox(&node, "response-head=rw");
    let through = parties.http(&node, &["--via", &via]);
    for http in [&direct, &through] {
        for (number, (name, _)) in RAW.iter().enumerate() {
            let mut client = RawClient::new(&http.address);
            let host = host_port(&http.address);
            client.send(format!("GET /raw/{number} HTTP/1.1\r\nHost: {host}\r\n\r\n{}", end(http)));
            let read = client.read_to_end();
            let responses = responses(&read);
            assert!(*name != GZIP || responses[0].0.starts_with("HTTP/1.1 502"), "{name}: {read}");
            let heads: Vec<&str> = responses.iter().map(|(head, _)| head.as_str()).collect();
            assert!(
                !heads.concat().to_ascii_lowercase().contains("\r\nx-smuggled"),
                "{name}: {read}"
            );
            // The connection may end after the first one, if that broke off.
            match responses.as_slice() {
                [_] => assert!(!read.ends_with("0\r\n\r\n"), "{name}: {read}"),
                [_, (_, page)] => assert_eq!(page, "the page", "{name}: {read}"),
                _ => panic!("{name}: {read}"),
            }
        }
    }
}

#[test]
fn a_field_that_a_middlebox_must_not_add_ends_the_exchange() {
    let parties = Parties::new();
    let node = parties.up("allow = 'response-head=rw'", false);
    for field in ["Content-Length: 3", "Transfer-Encoding: chunked", "Connection: x-a"] {
        let next = ["middlebox", "--next", &node.address(), "--add-response", field];
        let middlebox = Started::start(&parties.hop, &next);
        let via = format!("{}:response-head=rw", middlebox.address);
        let http = parties.http(&node, &["--via", &via]);
        let answer = curl(&["--include", &http.address]);
        assert!(answer.starts_with("HTTP/1.1 502"), "{field}: {answer}");
        assert!(answer.contains("a field that frames the message"), "{field}: {answer}");
    }
}

/// The responses that a client reads, as heads and bodies; the last one may have broken off.
fn responses(mut text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some((head, mut rest)) = text.split_once("\r\n\r\n") {
        let field = |name: &str| {
            let lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
            lines.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
        };
        let mut body = String::new();
        if field("transfer-encoding") == Some("chunked") {
            while let Some((size, after)) = rest.split_once("\r\n") {
                let part = after.get(..usize::from_str_radix(size, 16).unwrap()).unwrap_or(after);
                body += part;
                rest = after[part.len()..].strip_prefix("\r\n").unwrap_or_default();
                if part.is_empty() {
                    break;
                }
            }
        } else {
            let length = field("content-length").map_or(0, |length| length.parse().unwrap());
            body += &rest[..length];
            rest = &rest[length..];
        }
        all.push((head.to_owned(), body));
        text = rest;
    }
    all
}

fn end(http: &Started) -> String {
    let host = host_port(&http.address);
    format!("GET /end HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

fn attempt(parties: &Parties, http: &Started, name: &str, attack: &str) {
    let mut client = RawClient::new(&http.address);
    client.send(attack.replace("{host}", host_port(&http.address)));
    let first = client.read_until("\r\n\r\n");
    assert!(first.is_empty() || first.starts_with("HTTP/1."), "{name}: {first}");
    // Whatever the server takes for a second request comes before this one.
    client.send(end(http));
    let rest = client.read_to_end();
    let seen = parties.origin.take();
    let attacks = seen.iter().filter(|request| request.target() != "/end").count();
    assert!(attacks <= 1, "{name}: {seen:#?}\n{first}{rest}");
    for request in &seen {
        check(name, request);
    }
}

/// A head with one reading.
fn check(name: &str, request: &Recorded) {
    let known = ["/attack", "/end"].contains(&request.target());
    assert!(known, "{name}: {request:#?}");
    assert_eq!(request.values("host").len(), 1, "{name}: {request:#?}");
    let framing =
        request.values("content-length").len() + request.values("transfer-encoding").len();
    assert!(framing <= 1, "{name}: {request:#?}");
    for line in &request.head[1..] {
        let (field, value) = line.split_once(": ").unwrap();
        assert!(!field.contains([' ', '\t']), "{name}: {line}");
        assert!(!value.contains(['\r', '\n', '\0']), "{name}: {line}");
    }
}
