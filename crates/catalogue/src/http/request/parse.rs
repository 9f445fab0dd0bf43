//! Parses the head of a request.

use std::mem::MaybeUninit;

use super::framing::Framing;
use super::{BodyLength, Header, Headers, MAX_HEAD, MAX_HEADERS, Method, Refusal, Request, refuse};
use crate::host::Host;

/// The result of parsing the start of the received bytes.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // One at a time, on the stack: boxing it would cost an allocation for each request.
pub enum Parsed<'a> {
    /// A complete head, and its length in bytes.
    Request(Request<'a>, usize),
    /// The start of a head: more bytes are needed.
    Partial,
    /// No well-formed head.
    Refused(Refusal),
}

/// Parses the head of a request at the start of `bytes`.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [MaybeUninit::uninit(); MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let seen = bytes.split_at(bytes.len().min(MAX_HEAD)).0;
    match head.parse_with_uninit_headers(seen, &mut headers) {
        Ok(httparse::Status::Complete(used)) => match read(&head) {
            Ok(request) => Parsed::Request(request, used),
            Err(refusal) => Parsed::Refused(refusal),
        },
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => Parsed::Partial,
        Ok(httparse::Status::Partial) => Parsed::Refused(too_long(seen)),
        Err(error) => Parsed::Refused(malformed(error)),
    }
}

fn too_long(seen: &[u8]) -> Refusal {
    if seen.contains(&b'\n') {
        refuse(431, "the head of the request has more than 8192 bytes")
    } else {
        refuse(414, "the first line of the request has more than 8192 bytes")
    }
}

fn malformed(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => {
            refuse(431, "the request has more than 64 header fields")
        }
        httparse::Error::Version => refuse(505, "this is not HTTP/1.0 or HTTP/1.1"),
        _ => refuse(400, "the head of the request is malformed"),
    }
}

fn read<'a>(head: &httparse::Request<'_, 'a>) -> Result<Request<'a>, Refusal> {
    let http_1_0 = head.version == Some(0);
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let mut headers = Headers::default();
    let mut framing = Framing::default();
    for header in head.headers.iter() {
        read_field(header.name, header.value, &mut headers, &mut framing);
    }
    let body_length = framing.body_length(method)?;
    let (authority, target) = split_target(head.path.unwrap_or_default(), method)?;
    let host = find_host(framing.host, authority, http_1_0)?;
    let split = target.split_once('?');
    Ok(Request {
        method,
        path: split.map_or(target, |(path, _)| path),
        query: split.map(|(_, query)| query),
        host,
        keep_alive: !framing.close && (!http_1_0 || framing.keep_alive),
        http_1_0,
        body: &[],
        body_length,
        expects_continue: framing.expects_continue && !http_1_0 && body_length != BodyLength::None,
        headers,
    })
}

fn read_field<'a>(
    name: &str,
    value: &'a [u8],
    headers: &mut Headers<'a>,
    framing: &mut Framing<'a>,
) {
    // The length is compared first, because most fields are not used.
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    match name.len() {
        4 if is("host") => framing.host.add(value),
        5 if is("range") => headers.range.add(value),
        6 if is("expect") => framing.expects_continue |= has_token(value, "100-continue"),
        8 if is("if-range") => headers.if_range.add(value),
        10 if is("connection") => {
            framing.close |= has_token(value, "close");
            framing.keep_alive |= has_token(value, "keep-alive");
        }
        13 if is("if-none-match") => headers.if_none_match.add(value),
        13 if is("last-event-id") => headers.last_event_id.add(value),
        14 if is("content-length") => framing.length.add(value),
        15 if is("accept-encoding") => headers.accept_encoding.add(value),
        16 if is("x-forwarded-host") => headers.forwarded_host.add(value),
        17 if is("transfer-encoding") => framing.transfer_coding.add(value),
        _ => {}
    }
}

fn has_token(value: &[u8], token: &str) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Splits the target into the authority, if it has one, and the path with its query (RFC 9112
/// section 3.2).
fn split_target(target: &str, method: Method) -> Result<(Option<&str>, &str), Refusal> {
    if target.starts_with('/') || (target == "*" && method == Method::Options) {
        return Ok((None, target));
    }
    let invalid = refuse(400, "the target of the request is neither a path nor an http URL");
    let (scheme, rest) = target.split_once("://").ok_or(invalid)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(invalid);
    }
    match rest.find(['/', '?']) {
        Some(end) if rest[end..].starts_with('/') => Ok((Some(&rest[..end]), &rest[end..])),
        Some(_) => Err(invalid),
        None => Ok((Some(rest), "/")),
    }
}

/// HTTP/1.1 requires exactly one `Host`; the authority of the target takes precedence (RFC 9112
/// section 3.2).
fn find_host<'a>(
    header: Header<'a>,
    authority: Option<&'a str>,
    http_1_0: bool,
) -> Result<Option<Host<'a>>, Refusal> {
    let invalid = refuse(400, "the header Host is not HOST or HOST:PORT of at most 255 bytes");
    let header = match header {
        Header::Value(value) => Some(Host::new(value).map_err(|_| invalid)?),
        Header::Absent if http_1_0 => None,
        Header::Absent => return Err(refuse(400, "the request has no header Host")),
        Header::Repeated => return Err(refuse(400, "the request has more than one header Host")),
    };
    match authority {
        Some(text) => Ok(Some(Host::new(text.as_bytes()).map_err(|_| invalid)?)),
        None => Ok(header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request<'_> {
        match parse(text.as_bytes()) {
            Parsed::Request(request, used) if used == text.len() => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn refused(text: &[u8]) -> u16 {
        match parse(text) {
            Parsed::Refused(refusal) => refusal.status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parses_a_request() {
        let one = request("GET /a%2fb?c=d?e HTTP/1.1\r\nHost: h:1\r\nRange: bytes=0-\r\n\r\n");
        assert_eq!((one.method, one.path, one.query), (Method::Get, "/a%2fb", Some("c=d?e")));
        assert_eq!(one.host.map(Host::as_str), Some("h:1"));
        assert!(one.keep_alive && one.headers.range.value() == Some(b"bytes=0-"));
        let old = request("HEAD / HTTP/1.0\r\n\r\n");
        assert!(!old.keep_alive && old.host.is_none());
        assert!(request("GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n").keep_alive);
        assert!(!request("GET / HTTP/1.1\r\nHost: h\r\nconnection: close\r\n\r\n").keep_alive);
        assert_eq!(request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path, "*");
    }

    #[test]
    fn the_host_of_the_target_takes_precedence() {
        let one = request("GET http://a:2/x?y HTTP/1.1\r\nHost: b\r\n\r\n");
        assert_eq!((one.host.map(Host::as_str), one.path), (Some("a:2"), "/x"));
        assert_eq!(request("GET HTTPS://a HTTP/1.1\r\nHost: b\r\n\r\n").path, "/");
        for target in ["ftp://a/", "a:80", "*", "http://u@a/", "http:///", "http://a?x"] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: b\r\n\r\n");
            assert_eq!(refused(text.as_bytes()), 400, "{target}");
        }
    }

    #[test]
    fn refuses_ambiguous_framing() {
        for (fields, status) in [
            ("Content-Length: 1\r\n", 413),
            ("Content-Length: 0\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: +0\r\n", 400),
            ("Content-Length: 0, 5\r\n", 400),
            ("Transfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: identity\r\nContent-Length: 0\r\n", 400),
            ("Content-Length : 0\r\n", 400),
            ("Host: b\r\n", 400),
            ("X: a\r\n b\r\n", 400),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            assert_eq!(refused(text.as_bytes()), status, "{fields:?}");
        }
        request("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(refused(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"), 405);
    }

    #[test]
    fn bounds_every_length() {
        let long = "x".repeat(MAX_HEAD);
        assert_eq!(refused(format!("GET /{long} HTTP/1.1\r\n").as_bytes()), 414);
        assert_eq!(
            refused(format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n").as_bytes()),
            431
        );
        let many = "X: y\r\n".repeat(MAX_HEADERS + 1);
        assert_eq!(refused(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()), 431);
        assert_eq!(
            refused(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "h".repeat(256)).as_bytes()),
            400
        );
        assert_eq!(refused(b"GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(refused(b"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
        assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), 400);
    }
}
