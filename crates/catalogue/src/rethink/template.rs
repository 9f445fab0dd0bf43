//! Bodies with a placeholder for the host, and the second parse of serialized values.

use bytes::{Bytes, BytesMut};
use levada_core::sha256;

use super::write::write_escaped;
use super::{Host, Value, parse, pretty};

/// The maximum length of the body of an attribute, in bytes.
const MAX_ATTRIBUTE: usize = 128 * 1024 * 1024;

/// A body, with at most one placeholder for the host of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Bytes,
    /// The offset at which the host is inserted.
    host_at: Option<usize>,
    /// Whether the host is inserted into a JSON string.
    json: bool,
    tag: [u8; 16],
}

impl Template {
    /// A body without a host.
    pub(super) fn constant(text: impl Into<Bytes>) -> Self {
        Self::new(text.into(), None, false)
    }

    /// A JSON body with the host at the offset `host_at`, within a string.
    pub(super) fn json(text: String, host_at: Option<usize>) -> Self {
        // The index keeps the body, so spare capacity is released.
        Self::new(text.into_boxed_str().into_boxed_bytes().into(), host_at, true)
    }

    /// A plain text with the host at the offset `host_at`.
    pub(super) fn plain(text: String, host_at: usize) -> Self {
        Self::new(text.into(), Some(host_at), false)
    }

    fn new(text: Bytes, host_at: Option<usize>, json: bool) -> Self {
        let at = host_at.unwrap_or(usize::MAX) as u64;
        let mut tag = [0; 16];
        tag.copy_from_slice(&sha256(&[&at.to_be_bytes(), &text])[..16]);
        Self { text, host_at, json, tag }
    }

    /// Half of a SHA-256 that identifies the body, whatever the host.
    pub const fn tag(&self) -> [u8; 16] {
        self.tag
    }

    /// The text before the host and the text after it; without the second, the body has no host. If
    /// [`Self::escaped_host`] returns a text, it replaces the host.
    pub fn parts(&self) -> (Bytes, Option<Bytes>) {
        match self.host_at {
            Some(at) => (self.text.slice(..at), Some(self.text.slice(at..))),
            None => (self.text.clone(), None),
        }
    }

    /// The form of `host` in this body if it must be escaped: of the characters of a host,
    /// reTHINK's catalogue escapes `&`, `'` and `=` in JSON.
    pub fn escaped_host(&self, host: Host<'_>) -> Option<String> {
        if !self.json || !host.as_str().contains(['&', '\'', '=']) {
            return None;
        }
        let mut escaped = String::new();
        write_escaped(host.as_str(), true, &mut escaped);
        Some(escaped)
    }

    /// The body for `host`. A body without a host is not copied.
    pub fn fill(&self, host: Host<'_>) -> Bytes {
        let (before, Some(after)) = self.parts() else { return self.text.clone() };
        let escaped = self.escaped_host(host);
        let host = escaped.as_deref().unwrap_or(host.as_str());
        let mut body = BytesMut::with_capacity(self.text.len() + host.len());
        for part in [&before[..], host.as_bytes(), &after[..]] {
            body.extend_from_slice(part);
        }
        body.freeze()
    }
}

/// Parses a serialized value the second time, as reTHINK's catalogue did before it answered. A text
/// that does not parse stays a text. `None` if it has only blanks and comments.
pub(super) fn reparse(serialized: &str) -> Option<Value> {
    parse(serialized).unwrap_or_else(|_| Some(Value::Text(serialized.to_owned())))
}

/// The body of an attribute with this serialized value. `None` if it has only blanks and comments,
/// or the body would have more than [`MAX_ATTRIBUTE`] bytes.
pub(super) fn attribute_template(serialized: &str) -> Option<Template> {
    match reparse(serialized)? {
        Value::Text(text) | Value::Number(text) => Some(Template::constant(text)),
        Value::Bool(value) => Some(Template::constant(if value { "true" } else { "false" })),
        value @ (Value::Null | Value::List(_) | Value::Object(_)) => {
            pretty(&value, MAX_ATTRIBUTE).map(Template::constant)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host<'_> {
        Host::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_host_is_inserted_and_escaped_in_json() {
        let json = Template::json("{\"a\": \"x:///b\"}".to_owned(), Some(11));
        assert_eq!(json.fill(host("h:1")), "{\"a\": \"x://h:1/b\"}");
        assert_eq!(
            json.fill(host("a=b&'c'")),
            "{\"a\": \"x://a\\u003db\\u0026\\u0027c\\u0027/b\"}"
        );
        let plain = Template::plain("x:///b".to_owned(), 4);
        assert_eq!(plain.fill(host("a=b")), "x://a=b/b");
        assert_eq!(plain.parts(), (Bytes::from("x://"), Some(Bytes::from("/b"))));
        let constant = Template::constant("text");
        assert_eq!((constant.fill(host("h")), constant.parts().1), (Bytes::from("text"), None));
    }

    #[test]
    fn an_attribute_is_plain_text_or_pretty_json() {
        let body =
            |serialized: &str| attribute_template(serialized).map(|body| body.fill(host("h")));
        for (serialized, text) in [
            ("d", "d"),
            ("'x y'", "x y"),
            ("foo #c", "foo #c"),
            ("TRUE", "true"),
            ("-0", "0"),
            ("null", "null"),
            ("[1,]", "[\n  1,\n  null\n]"),
            ("<b>a=1</b>", "<b>a=1</b>"),
            ("{a:'<'}", "{\n  \"a\": \"\\u003c\"\n}"),
        ] {
            assert_eq!(body(serialized).as_deref(), Some(text.as_bytes()), "{serialized}");
        }
        for nothing in ["", "  ", "#c", "/*c*/"] {
            assert_eq!(body(nothing), None);
        }
    }
}
