//! Strong entity tags and the conditional requests that use them (RFC 9110 sections 8.8.3 and
//! 13.1).

use data_encoding::HEXLOWER;
use levada_core::{Digest, sha256};

use super::request::{Header, Request};

/// A strong entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// `"sha256:…"`: the digest of the body.
    Body(Digest),
    /// `"sha256:…-gzip"`: the digest of the body before compression.
    Compressed(Digest),
    /// Half a digest, of a body template before the host is filled in.
    Template([u8; 16]),
}

/// The length of the longest tag: quotes, `sha256:`, 64 digits, `-gzip`.
const MAX_LENGTH: usize = 2 + 7 + 64 + 5;

impl Tag {
    /// The tag of `body`.
    pub fn of(body: &[u8]) -> Self {
        Self::Body(sha256(&[body]))
    }

    /// Appends the tag with its quotes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (before, bytes, after): (&[u8], &[u8], &[u8]) = match self {
            Self::Body(digest) => (b"\"sha256:", digest, b"\""),
            Self::Compressed(digest) => (b"\"sha256:", digest, b"-gzip\""),
            Self::Template(half) => (b"\"", half, b"\""),
        };
        out.extend_from_slice(before);
        let start = out.len();
        out.resize(start + 2 * bytes.len(), 0);
        HEXLOWER.encode_mut(bytes, &mut out[start..]);
        out.extend_from_slice(after);
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(MAX_LENGTH);
        self.write(&mut text);
        text
    }

    /// Whether `If-None-Match` lists it, by weak comparison (section 13.1.2).
    pub fn is_known(&self, request: &Request<'_>) -> bool {
        request.headers.if_none_match.value().is_some_and(|value| self.is_in(value))
    }

    /// Whether this value of `If-None-Match` lists it.
    pub fn is_in(&self, value: &[u8]) -> bool {
        let own = self.text();
        value
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .any(|one| one == b"*" || one.strip_prefix(b"W/".as_slice()).unwrap_or(one) == own)
    }

    /// Whether a range may be answered: `If-Range` is absent or equals this tag. A date in
    /// `If-Range` never matches.
    pub fn permits_range(&self, request: &Request<'_>) -> bool {
        match request.headers.if_range {
            Header::Absent => true,
            other => other.value().is_some_and(|value| value.trim_ascii() == self.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};

    fn known(tag: &Tag, value: &str) -> bool {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\nIf-None-Match: {value}\r\n\r\n");
        let Parsed::Request(request, _) = parse(text.as_bytes()) else { panic!("{text}") };
        tag.is_known(&request)
    }

    #[test]
    fn finds_a_tag_in_a_list() {
        let tag = Tag::of(b"x");
        let own = String::from_utf8(tag.text()).unwrap();
        assert!(own.starts_with("\"sha256:2d711642b726b044") && own.len() == 2 + 7 + 64);
        assert!(known(&tag, &own) && known(&tag, "*") && known(&tag, &format!("\"a\" , W/{own}")));
        assert!(!known(&tag, "\"a\"") && !known(&tag, "") && !known(&tag, own.trim_matches('"')));
        let compressed = Tag::Compressed([1; 32]);
        assert!(compressed.text().len() == MAX_LENGTH && !known(&compressed, &own));
        assert_eq!(Tag::Template([0xab; 16]).text(), format!("\"{}\"", "ab".repeat(16)).as_bytes());
    }
}
