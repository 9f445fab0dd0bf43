//! Heads of requests and responses as they travel in a context.
//!
//! A head is `METHOD SP target CRLF` or `STATUS CRLF`, and then `name: value CRLF` for each field.
//! Fields that say where a message ends, or that concern one connection, do not travel (RFC 9110
//! section 7.6.1): the receiving side makes them anew. A head that has one comes from a middlebox,
//! and is refused.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use thiserror::Error;

/// The longest head, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;
/// The most fields of a head.
const MAX_FIELDS: usize = 256;

/// Why a head was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("a head of the wrong form: {0}")]
pub struct HeadError(pub &'static str);

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// In origin form: a path, with a query.
    pub(crate) target: Uri,
    pub(crate) fields: HeaderMap,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
}

/// Whether a field frames a message or concerns one connection.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 7] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
    ];
    NAMES.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Removes the fields that do not travel, and those that the field Connection names.
pub(super) fn strip(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let drop: Vec<HeaderName> = fields.keys().filter(|name| is_hop_by_hop(name)).cloned().collect();
    for name in named.into_iter().chain(drop) {
        fields.remove(&name);
    }
}

impl RequestHead {
    /// The first line, with its end.
    pub(super) fn line(&self) -> String {
        let target = self.target.path_and_query().map_or("/", |target| target.as_str());
        format!("{} {target}\r\n", self.method)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        let (first, rest) = first_line(bytes)?;
        let (method, target) = first.split_once(' ').ok_or(HeadError("the request line"))?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError("the method"))?;
        // An absolute target would let a middlebox choose another host.
        if method == Method::CONNECT || !(target.starts_with('/') || target == "*") {
            return Err(HeadError("the target"));
        }
        let target = target.parse().map_err(|_| HeadError("the target"))?;
        let fields = take_fields(rest)?;
        if fields.get_all(header::HOST).iter().count() > 1 {
            return Err(HeadError("two fields Host"));
        }
        Ok(Self { method, target, fields })
    }
}

impl ResponseHead {
    /// The first line, with its end.
    pub(super) fn line(&self) -> String {
        format!("{}\r\n", self.status.as_str())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        let (first, rest) = first_line(bytes)?;
        let status =
            StatusCode::from_bytes(first.as_bytes()).map_err(|_| HeadError("the status"))?;
        // Interim responses do not travel.
        if status.is_informational() {
            return Err(HeadError("the status"));
        }
        Ok(Self { status, fields: take_fields(rest)? })
    }
}

/// Appends fields, as trailers travel, too.
pub(super) fn put_fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
}

fn first_line(bytes: &[u8]) -> Result<(&str, &[u8]), HeadError> {
    if bytes.len() > MAX_HEAD {
        return Err(HeadError("too long"));
    }
    let (line, rest) = take_line(bytes)?;
    let line = std::str::from_utf8(line).map_err(|_| HeadError("the first line"))?;
    if !line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(HeadError("the first line"));
    }
    Ok((line, rest))
}

/// The first line, without its end, and the rest. A line ends with CRLF and has neither CR nor LF.
fn take_line(bytes: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let (line, rest) = bytes.split_at(end.ok_or(HeadError("a line without an end"))?);
    let rest = rest.strip_prefix(b"\r\n").ok_or(HeadError("a stray CR, LF or NUL"))?;
    Ok((line, rest))
}

/// Fields up to the end of `bytes`.
pub(super) fn take_fields(mut bytes: &[u8]) -> Result<HeaderMap, HeadError> {
    let mut fields = HeaderMap::new();
    while !bytes.is_empty() {
        let (line, rest) = take_line(bytes)?;
        let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadError("a field"))?;
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        // A name has no white space, so a continued line is no field either (RFC 9112 sections 5.1
        // and 5.2).
        let name = HeaderName::from_bytes(name).map_err(|_| HeadError("the name of a field"))?;
        let value =
            HeaderValue::from_bytes(value).map_err(|_| HeadError("the value of a field"))?;
        if is_hop_by_hop(&name) {
            return Err(HeadError("a field that frames the message"));
        }
        if fields.len() == MAX_FIELDS {
            return Err(HeadError("too many fields"));
        }
        fields.append(name, value);
        bytes = rest;
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(head: &RequestHead) -> Vec<u8> {
        let mut bytes = head.line().into_bytes();
        put_fields(&mut bytes, &head.fields);
        bytes
    }

    #[test]
    fn heads_round_trip_without_what_concerns_one_connection() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("host", "a"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("accept", "*/*"),
            ("cookie", "a=b"),
            ("cookie", "c=d"),
        ] {
            fields.append(name, HeaderValue::from_static(value));
        }
        strip(&mut fields);
        let head = RequestHead { method: Method::POST, target: "/p?q=1".parse().unwrap(), fields };
        let bytes = encode(&head);
        let text = "POST /p?q=1\r\nhost: a\r\naccept: */*\r\ncookie: a=b\r\ncookie: c=d\r\n";
        assert_eq!(String::from_utf8_lossy(&bytes), text);
        let back = RequestHead::decode(&bytes).unwrap();
        assert_eq!((back.method, back.target.to_string()), (Method::POST, "/p?q=1".to_owned()));
        assert_eq!(back.fields.get_all("cookie").iter().count(), 2);
    }

    /// Request smuggling and response splitting: each is a head that a middlebox could send.
    #[test]
    fn a_head_that_could_be_read_in_two_ways_is_refused() {
        let wrong: [&[u8]; 16] = [
            b"",
            b"GET /",
            b"GET /\n",
            b"GET http://other/\r\n",
            b"CONNECT other:443\r\n",
            b"GET / HTTP/1.1\r\n",
            b"GET /\r\ncontent-length: 5\r\n",
            b"GET /\r\nTransfer-Encoding: chunked\r\n",
            b"GET /\r\ntransfer-encoding : chunked\r\n",
            b"GET /\r\n transfer-encoding: chunked\r\n",
            b"GET /\r\na: b\r\n c\r\n",
            b"GET /\r\na: b\nc: d\r\n",
            b"GET /\r\na: b\rc\r\n",
            b"GET /\r\nhost: a\r\nhost: b\r\n",
            b"GET /\r\n\r\nGET /other\r\n",
            b"GET /\r\na: b\0\r\n",
        ];
        for bytes in wrong {
            assert!(RequestHead::decode(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        for bytes in [&b"100\r\n"[..], b"200 OK\r\n", b"200\r\nupgrade: h2c\r\n", b"20\r\n"] {
            assert!(ResponseHead::decode(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(ResponseHead::decode(b"200\r\n").is_ok());
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_what_is_accepted_encodes_to_the_same_meaning() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = ResponseHead::decode(bytes);
            let with_line = [b"GET /\r\n", bytes.as_slice()].concat();
            if let Ok(head) = RequestHead::decode(&with_line) {
                let again = RequestHead::decode(&encode(&head)).unwrap();
                assert_eq!(again.fields, head.fields);
            }
        });
    }
}
