//! The head of a request (RFC 9112).

mod framing;

use std::mem::MaybeUninit;

use crate::rethink::Host;
use framing::Framing;

pub(super) use framing::Sends;

/// The longest head, in bytes.
pub const MAX_HEAD: usize = 8 * 1024;
/// The most fields in a head.
pub const MAX_HEADERS: usize = 64;

/// The methods that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: as GET, without the body.
    Head,
    /// POST: as GET, with conditions; under `/.well-known/` alone.
    Post,
    /// OPTIONS: what is allowed.
    Options,
    /// Any other.
    Other,
}

/// A request that is well-formed.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: Method,
    /// The path as it stands: nothing is decoded. `*` for `OPTIONS *`.
    pub path: &'a str,
    /// What follows the first `?`.
    pub query: Option<&'a str>,
    /// Host and port that the client meant. Only HTTP/1.0 may say none.
    pub host: Option<Host<'a>>,
    /// Whether the connection can stay.
    pub keep_alive: bool,
    /// Whether it is HTTP/1.0.
    pub old: bool,
    /// Its body: empty until that has come.
    pub body: &'a [u8],
    /// What follows the head.
    pub(super) sends: Sends,
    /// The client waits to be told that its body is wanted (RFC 9110 section 10.1.1).
    pub(super) waits: bool,
    pub(super) if_none_match: Once<'a>,
    pub(super) if_range: Once<'a>,
    pub(super) range: Once<'a>,
    pub(super) accept_encoding: Once<'a>,
    pub(super) last_event_id: Once<'a>,
    pub(super) forwarded_host: Once<'a>,
}

/// A field that counts only if it is there once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Once<'a> {
    #[default]
    Absent,
    Value(&'a [u8]),
    Repeated,
}

impl<'a> Once<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = if *self == Self::Absent { Self::Value(value) } else { Self::Repeated };
    }

    /// The value, if it is there once.
    pub fn value(self) -> Option<&'a [u8]> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }
}

/// Why a request is refused, before anybody looks at what it asks for. The connection is closed after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP.
    pub status: u16,
    /// What is wrong, in a sentence.
    pub detail: &'static str,
}

const fn refuse(status: u16, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}

/// What the bytes that have come are.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // One at a time, on the stack: a box would be an allocation for each request.
pub enum Parsed<'a> {
    /// A head, and how many bytes it has.
    Request(Request<'a>, usize),
    /// The beginning of one.
    Partial,
    /// None.
    Refused(Refusal),
}

/// Reads the head of a request from the beginning of `bytes`.
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
    let old = head.version == Some(0);
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let mut request = Request {
        method,
        path: "",
        query: None,
        host: None,
        keep_alive: false,
        old,
        body: &[],
        sends: Sends::Nothing,
        waits: false,
        if_none_match: Once::Absent,
        if_range: Once::Absent,
        range: Once::Absent,
        accept_encoding: Once::Absent,
        last_event_id: Once::Absent,
        forwarded_host: Once::Absent,
    };
    let mut framing = Framing::default();
    for header in head.headers.iter() {
        read_field(header.name, header.value, &mut request, &mut framing);
    }
    request.sends = framing.sends(method)?;
    request.waits = framing.waits && !old && request.sends != Sends::Nothing;
    request.keep_alive = !framing.close && (!old || framing.keep);
    let (authority, target) = split_target(head.path.unwrap_or_default(), method)?;
    request.host = find_host(framing.host, authority, old)?;
    (request.path, request.query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    Ok(request)
}

fn read_field<'a>(
    name: &str,
    value: &'a [u8],
    request: &mut Request<'a>,
    framing: &mut Framing<'a>,
) {
    // By length first: most fields are of no interest.
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    match name.len() {
        4 if is("host") => framing.host.add(value),
        5 if is("range") => request.range.add(value),
        6 if is("expect") => framing.waits |= has_token(value, "100-continue"),
        8 if is("if-range") => request.if_range.add(value),
        10 if is("connection") => {
            framing.close |= has_token(value, "close");
            framing.keep |= has_token(value, "keep-alive");
        }
        13 if is("if-none-match") => request.if_none_match.add(value),
        13 if is("last-event-id") => request.last_event_id.add(value),
        14 if is("content-length") => {
            framing.length.add(value);
        }
        15 if is("accept-encoding") => request.accept_encoding.add(value),
        16 if is("x-forwarded-host") => request.forwarded_host.add(value),
        17 if is("transfer-encoding") => framing.coding.add(value),
        _ => {}
    }
}

fn has_token(value: &[u8], token: &str) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// The authority, if the target has one, and the rest (RFC 9112 section 3.2).
fn split_target(target: &str, method: Method) -> Result<(Option<&str>, &str), Refusal> {
    if target.starts_with('/') || (target == "*" && method == Method::Options) {
        return Ok((None, target));
    }
    let wrong = refuse(400, "the target of the request is neither a path nor an http URL");
    let (scheme, rest) = target.split_once("://").ok_or(wrong)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(wrong);
    }
    match rest.find(['/', '?']) {
        Some(end) if rest[end..].starts_with('/') => Ok((Some(&rest[..end]), &rest[end..])),
        Some(_) => Err(wrong),
        None => Ok((Some(rest), "/")),
    }
}

/// RFC 9112 section 3.2: exactly one, and that of the target counts more.
fn find_host<'a>(
    header: Once<'a>,
    authority: Option<&'a str>,
    old: bool,
) -> Result<Option<Host<'a>>, Refusal> {
    let wrong = refuse(400, "the header Host is not HOST or HOST:PORT of at most 255 bytes");
    let header = match header {
        Once::Value(value) => Some(Host::new(value).map_err(|_| wrong)?),
        Once::Absent if old => None,
        Once::Absent => return Err(refuse(400, "the request has no header Host")),
        Once::Repeated => return Err(refuse(400, "the request has more than one header Host")),
    };
    match authority {
        Some(text) => Ok(Some(Host::new(text.as_bytes()).map_err(|_| wrong)?)),
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
    fn a_request_is_read() {
        let one = request("GET /a%2fb?c=d?e HTTP/1.1\r\nHost: h:1\r\nRange: bytes=0-\r\n\r\n");
        assert_eq!((one.method, one.path, one.query), (Method::Get, "/a%2fb", Some("c=d?e")));
        assert_eq!(one.host.map(Host::as_str), Some("h:1"));
        assert!(one.keep_alive && one.range.value() == Some(b"bytes=0-"));
        let old = request("HEAD / HTTP/1.0\r\n\r\n");
        assert!(!old.keep_alive && old.host.is_none());
        assert!(request("GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n").keep_alive);
        assert!(!request("GET / HTTP/1.1\r\nHost: h\r\nconnection: close\r\n\r\n").keep_alive);
        assert_eq!(request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path, "*");
    }

    #[test]
    fn the_host_of_the_target_counts_more() {
        let one = request("GET http://a:2/x?y HTTP/1.1\r\nHost: b\r\n\r\n");
        assert_eq!((one.host.map(Host::as_str), one.path), (Some("a:2"), "/x"));
        assert_eq!(request("GET HTTPS://a HTTP/1.1\r\nHost: b\r\n\r\n").path, "/");
        for target in ["ftp://a/", "a:80", "*", "http://u@a/", "http:///", "http://a?x"] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: b\r\n\r\n");
            assert_eq!(refused(text.as_bytes()), 400, "{target}");
        }
    }

    #[test]
    fn what_could_hide_a_second_request_is_refused() {
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
    fn every_length_is_bounded() {
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
