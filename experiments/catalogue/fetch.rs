//! A single HTTP/1.1 request, for preparation and checks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use httparse::{EMPTY_HEADER, Response, Status};

use super::generator::{Expect, Target};
use crate::testbed::Testbed;

/// The `Host` of all requests, so that answers do not depend on the listening address.
pub const HOST: &str = "catalogue.example";
/// The time limit for each step of a request.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest answer, in bytes.
const ANSWER: u64 = 16 * 1024 * 1024;

/// The answer to a request.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The value of `ETag`.
    pub etag: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// An encoded request; with `last`, the server is to close the connection after its answer.
pub fn request(path: &str, etag: Option<&str>, last: bool) -> Vec<u8> {
    let etag = etag.map(|etag| format!("If-None-Match: {etag}\r\n")).unwrap_or_default();
    let close = if last { "Connection: close\r\n" } else { "" };
    let head = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: levada-xp\r\n");
    format!("{head}{etag}{close}\r\n").into_bytes()
}

/// A target with one repeated request, expecting the current answer.
pub fn target(
    testbed: &Testbed,
    address: SocketAddr,
    path: &str,
    conditional: bool,
    last: bool,
) -> anyhow::Result<Target> {
    let answer = get(testbed, address, path, None)?;
    ensure!(answer.status == 200, "{path} was answered {}", answer.status);
    let length = Some(answer.body.len() as u64);
    let mut expect = Expect { status: 200, length };
    let mut etag = None;
    if conditional {
        etag = Some(answer.etag.with_context(|| format!("the answer to {path} has no ETag"))?);
        expect = Expect { status: 304, length: None };
    }
    let requests = vec![request(path, etag.as_deref(), last)];
    Ok(Target { address, requests, expect })
}

/// Gets `path` once, from the near end.
pub fn get(
    testbed: &Testbed,
    address: SocketAddr,
    path: &str,
    etag: Option<&str>,
) -> anyhow::Result<Answer> {
    let request = request(path, etag, true);
    let bytes = testbed.near(|| exchange(address, &request))?;
    parse(&bytes.with_context(|| format!("get {path} of {address}"))?)
}

fn exchange(address: SocketAddr, request: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut socket = TcpStream::connect_timeout(&address, LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    socket.write_all(request)?;
    let mut bytes = Vec::new();
    match socket.take(ANSWER).read_to_end(&mut bytes) {
        // A server that closes with unread data sends a reset; `parse` checks that the answer is
        // complete.
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(bytes),
    }
}

fn parse(bytes: &[u8]) -> anyhow::Result<Answer> {
    let mut fields = [EMPTY_HEADER; 64];
    let mut response = Response::new(&mut fields);
    let Status::Complete(head) = response.parse(bytes)? else { bail!("the answer is truncated") };
    let field = |name: &str| {
        let named = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
        let found = response.headers.iter().rfind(named);
        found.map(|field| String::from_utf8_lossy(field.value).into_owned())
    };
    let body = bytes[head..].to_vec();
    if let Some(length) = field("content-length") {
        let status = response.code == Some(304);
        ensure!(status || length == body.len().to_string(), "the answer is truncated");
    }
    let status = response.code.context("the answer has no status")?;
    Ok(Answer { status, etag: field("etag"), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_answer_is_an_error() {
        let answer = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\nok";
        let parsed = parse(answer).unwrap();
        assert_eq!((parsed.status, parsed.etag.as_deref()), (200, Some("\"a\"")));
        assert_eq!(parsed.body, b"ok");
        assert!(parse(&answer[..answer.len() - 1]).is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn requests_have_the_requested_headers() {
        let text = String::from_utf8(request("/a", Some("\"x\""), true)).unwrap();
        assert!(text.starts_with("GET /a HTTP/1.1\r\nHost: catalogue.example\r\n"));
        assert!(text.ends_with("If-None-Match: \"x\"\r\nConnection: close\r\n\r\n"));
    }
}
