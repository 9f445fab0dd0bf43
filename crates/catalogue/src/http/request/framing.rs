//! The framing of a request: where its body ends (RFC 9112 section 6).

use super::{BodyLength, Header, Method, Refusal, refuse};
use crate::http::decimal;

/// The header fields that concern the message and the connection.
#[derive(Default)]
pub(super) struct Framing<'a> {
    pub host: Header<'a>,
    pub close: bool,
    pub keep_alive: bool,
    pub length: Header<'a>,
    pub transfer_coding: Header<'a>,
    pub expects_continue: bool,
}

impl Framing<'_> {
    /// The rule by which the end of the body is found. Ambiguous framing is refused: a proxy in
    /// front could interpret it differently (request smuggling).
    pub fn body_length(&self, method: Method) -> Result<BodyLength, Refusal> {
        let ambiguous = refuse(
            400,
            "the length of the request body is ambiguous: send one Content-Length, or Transfer-Encoding: chunked",
        );
        let length = match (self.length, self.transfer_coding) {
            (Header::Absent, Header::Absent) => BodyLength::None,
            (Header::Absent, Header::Value(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
                BodyLength::Chunked
            }
            (Header::Value(length), Header::Absent) => {
                match decimal::saturating(length).ok_or(ambiguous)? {
                    0 => BodyLength::None,
                    length => BodyLength::Bytes(length),
                }
            }
            _ => return Err(ambiguous),
        };
        match method {
            _ if length == BodyLength::None => Ok(length),
            Method::Post => Ok(length),
            Method::Other => Err(refuse(405, "only GET, HEAD, POST and OPTIONS are answered here")),
            _ if length == BodyLength::Chunked => {
                Err(refuse(400, "a request of this method has no body"))
            }
            _ => Err(refuse(413, "a request of this method has no body")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};

    #[test]
    fn finds_the_length_of_the_body_of_a_post() {
        for (fields, length) in [
            ("", BodyLength::None),
            ("Content-Length: 0\r\n", BodyLength::None),
            ("Content-Length: 007\r\n", BodyLength::Bytes(7)),
            ("Content-Length: 99999999999999999999999\r\n", BodyLength::Bytes(u64::MAX)),
            ("Transfer-Encoding: Chunked\r\n", BodyLength::Chunked),
        ] {
            let text =
                format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n{fields}\r\n");
            let Parsed::Request(request, _) = parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(
                (request.body_length, request.expects_continue),
                (length, length != BodyLength::None),
                "{fields}"
            );
        }
        for fields in [
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Content-Length: 1,1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length:\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let Parsed::Refused(refusal) = parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(refusal.status, 400, "{fields}");
        }
    }
}
