//! Where a request ends (RFC 9112 section 6).

use super::{Method, Once, Refusal, refuse};

/// What follows the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Sends {
    /// No body.
    Nothing,
    /// A body of so many bytes, at least one; not more than fit here.
    Length(u64),
    /// A body in chunks.
    Chunked,
}

/// What fields say that belong to the message, not to what is asked for.
#[derive(Default)]
pub(super) struct Framing<'a> {
    pub host: Once<'a>,
    pub close: bool,
    pub keep: bool,
    pub length: Once<'a>,
    pub coding: Once<'a>,
    pub waits: bool,
}

impl Framing<'_> {
    /// What follows the head. Where it ends must not be in doubt: a proxy in front may see it otherwise.
    pub fn sends(&self, method: Method) -> Result<Sends, Refusal> {
        let ambiguous = refuse(
            400,
            "where the body of the request ends is in doubt: send one Content-Length, or Transfer-Encoding: chunked",
        );
        let sends = match (self.length, self.coding) {
            (Once::Absent, Once::Absent) => Sends::Nothing,
            (Once::Absent, Once::Value(coding)) if coding.eq_ignore_ascii_case(b"chunked") => {
                Sends::Chunked
            }
            (Once::Value(length), Once::Absent) => match length_of(length).ok_or(ambiguous)? {
                0 => Sends::Nothing,
                length => Sends::Length(length),
            },
            _ => return Err(ambiguous),
        };
        match method {
            _ if sends == Sends::Nothing => Ok(sends),
            Method::Post => Ok(sends),
            Method::Other => Err(refuse(405, "only GET, HEAD, POST and OPTIONS are answered here")),
            _ if sends == Sends::Chunked => {
                Err(refuse(400, "a request of this method has no body"))
            }
            _ => Err(refuse(413, "a request of this method has no body")),
        }
    }
}

/// Digits only; what is too large is the largest there is.
fn length_of(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(value).ok()?.parse().ok().or(Some(u64::MAX)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};

    #[test]
    fn a_post_says_how_its_body_ends() {
        for (fields, sends) in [
            ("", Sends::Nothing),
            ("Content-Length: 0\r\n", Sends::Nothing),
            ("Content-Length: 007\r\n", Sends::Length(7)),
            ("Content-Length: 99999999999999999999999\r\n", Sends::Length(u64::MAX)),
            ("Transfer-Encoding: Chunked\r\n", Sends::Chunked),
        ] {
            let text =
                format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n{fields}\r\n");
            let Parsed::Request(request, _) = parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(
                (request.sends, request.waits),
                (sends, sends != Sends::Nothing),
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
