//! What is answered: a body in which the host may have to be filled in, or a text that says why there is none.

use bytes::{Bytes, BytesMut};
use levada_core::sha256;

use super::package::PackageIf;
use super::write::write_escaped;
use super::{Host, PackageRequest, Value, parse, pretty};
use crate::model::Kind;

/// The longest body of an attribute, in bytes.
const MAX_ATTRIBUTE: usize = 128 * 1024 * 1024;

/// What the original's layer says to a path.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status 200, [`super::MEDIA_TYPE`].
    Body(Template),
    /// The code of a package is needed first.
    Package(PackageRequest),
    /// The code of a package decides which answer it is.
    PackageIf(Box<PackageIf>),
    /// A list of the objects of this kind that meet the conditions: see [`super::Catalogue::candidates`].
    ListIf(Kind),
    /// There is no such thing: status 404, and this text, which no client takes for JSON.
    Missing(String),
}

/// A body that is complete, or lacks the host of the request in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Bytes,
    hole: Option<usize>,
    /// Whether the host is written as in a string of JSON.
    json: bool,
    tag: [u8; 16],
}

impl Template {
    /// A body that is the same for everybody.
    pub(super) fn whole(text: impl Into<Bytes>) -> Self {
        Self::new(text.into(), None, false)
    }

    /// A body of JSON that lacks the host at the offset `hole`, within a string.
    pub(super) fn json(text: String, hole: Option<usize>) -> Self {
        // It is kept: without room for more.
        Self::new(text.into_boxed_str().into_boxed_bytes().into(), hole, true)
    }

    /// A bare text that lacks the host at the offset `hole`.
    pub(super) fn bare(text: String, hole: usize) -> Self {
        Self::new(text.into(), Some(hole), false)
    }

    fn new(text: Bytes, hole: Option<usize>, json: bool) -> Self {
        let at = hole.unwrap_or(usize::MAX) as u64;
        let mut tag = [0; 16];
        tag.copy_from_slice(&sha256(&[&at.to_be_bytes(), &text])[..16]);
        Self { text, hole, json, tag }
    }

    /// Differs for bodies that differ in more than the host: half of a SHA-256.
    pub const fn tag(&self) -> [u8; 16] {
        self.tag
    }

    /// What stands before the host, and what behind it; without the second the body is the same for every host. Where
    /// the host stands in JSON, it has to be written as [`Self::spelled`] says.
    pub fn parts(&self) -> (Bytes, Option<Bytes>) {
        match self.hole {
            Some(hole) => (self.text.slice(..hole), Some(self.text.slice(hole..))),
            None => (self.text.clone(), None),
        }
    }

    /// How `host` is written in this body, if not as it stands: of what a host may have in it, the original escaped
    /// `&`, `'` and `=`.
    pub fn spelled(&self, host: Host<'_>) -> Option<String> {
        if !self.json || !host.as_str().contains(['&', '\'', '=']) {
            return None;
        }
        let mut spelled = String::new();
        write_escaped(host.as_str(), true, &mut spelled);
        Some(spelled)
    }

    /// The body for `host`. Nothing is copied where no host is needed.
    pub fn fill(&self, host: Host<'_>) -> Bytes {
        let (before, Some(after)) = self.parts() else { return self.text.clone() };
        let spelled = self.spelled(host);
        let host = spelled.as_deref().unwrap_or(host.as_str());
        let mut body = BytesMut::with_capacity(self.text.len() + host.len());
        for part in [&before[..], host.as_bytes(), &after[..]] {
            body.extend_from_slice(part);
        }
        body.freeze()
    }
}

/// What the second half of the original made of a value that the first half sent as `carried`. `None` is nothing at
/// all.
pub(super) fn reread(carried: &str) -> Option<Value> {
    parse(carried).unwrap_or_else(|_| Some(Value::Text(carried.to_owned())))
}

/// The body of an attribute whose value was sent as `carried`. `None` if there is nothing in it, or too much.
pub(super) fn attribute_body(carried: &str) -> Option<Template> {
    match reread(carried)? {
        Value::Text(text) | Value::Number(text) => Some(Template::whole(text)),
        Value::Flag(flag) => Some(Template::whole(if flag { "true" } else { "false" })),
        value @ (Value::Null | Value::List(_) | Value::Object(_)) => {
            pretty(&value, MAX_ATTRIBUTE).map(Template::whole)
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
    fn the_host_is_filled_in_and_escaped_where_it_stands_in_json() {
        let json = Template::json("{\"a\": \"x:///b\"}".to_owned(), Some(11));
        assert_eq!(json.fill(host("h:1")), "{\"a\": \"x://h:1/b\"}");
        assert_eq!(
            json.fill(host("a=b&'c'")),
            "{\"a\": \"x://a\\u003db\\u0026\\u0027c\\u0027/b\"}"
        );
        let bare = Template::bare("x:///b".to_owned(), 4);
        assert_eq!(bare.fill(host("a=b")), "x://a=b/b");
        assert_eq!(bare.parts(), (Bytes::from("x://"), Some(Bytes::from("/b"))));
        let whole = Template::whole("text");
        assert_eq!((whole.fill(host("h")), whole.parts().1), (Bytes::from("text"), None));
    }

    #[test]
    fn an_attribute_is_its_bare_text_or_pretty_json() {
        let body = |carried: &str| attribute_body(carried).map(|body| body.fill(host("h")));
        for (carried, text) in [
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
            assert_eq!(body(carried).as_deref(), Some(text.as_bytes()), "{carried}");
        }
        for nothing in ["", "  ", "#c", "/*c*/"] {
            assert_eq!(body(nothing), None);
        }
    }
}
