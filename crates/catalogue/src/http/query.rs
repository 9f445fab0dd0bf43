//! The query of a request, and percent-encoding (RFC 3986 section 2.1).

use std::borrow::Cow;

use super::decimal;
use super::problem::problem;
use super::response::Response;
use crate::model::Kind;

/// The maximum number of items on a page.
pub(super) const MAX_LIMIT: u32 = 1000;
/// The number of items on a page without the parameter `limit`.
pub(super) const DEFAULT_LIMIT: u32 = 100;

/// The decoded parameters of a query.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query in which each parameter of `known` may occur once, and no other.
    pub fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, Response> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| {
                let text = decode(&text.replace('+', " ")).map(Cow::into_owned);
                text.ok_or_else(|| problem(400, "the query is not percent-encoded UTF-8"))
            };
            let name = decode(name)?;
            let value = decode(value)?;
            if !known.contains(&name.as_str()) {
                return Err(unknown(known));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(problem(400, format!("the parameter `{name}` occurs twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter; `None` if it is absent or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// The value of a required parameter; it may be empty.
    pub fn required(&self, name: &str) -> Result<&str, Response> {
        self.given(name).ok_or_else(|| problem(400, format!("the parameter `{name}` is missing")))
    }

    fn given(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a decimal number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Response> {
        let Some(text) = self.given(name) else { return Ok(None) };
        decimal::exact(text.as_bytes())
            .map(Some)
            .ok_or_else(|| problem(400, format!("`{name}` is not a whole number: use 0 or more")))
    }

    /// The number of items on a page.
    pub fn limit(&self) -> Result<u32, Response> {
        let Some(limit) = self.number("limit")? else { return Ok(DEFAULT_LIMIT) };
        let fits = u32::try_from(limit).ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        fits.ok_or_else(|| problem(400, format!("`limit` must be from 1 to {MAX_LIMIT}")))
    }

    /// The kind of objects, if it is given.
    pub fn kind(&self) -> Result<Option<Kind>, Response> {
        let Some(text) = self.given("kind") else { return Ok(None) };
        let kind = text.parse::<Kind>().map_err(|error| problem(400, error.to_string()))?;
        Ok(Some(kind))
    }
}

fn unknown(known: &[&str]) -> Response {
    if known.is_empty() {
        return problem(400, "this path has no parameters");
    }
    problem(400, format!("unknown parameter: this path has {}", known.join(", ")))
}

/// Decodes percent-encoded text; `None` if it is malformed or not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte =
            if byte == b'%' { digit(bytes.next()?)? << 4 | digit(bytes.next()?)? } else { byte };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Percent-encodes `text` for a path segment or a query value. Only unreserved characters are left
/// as they are, so the result is also safe in an HTML attribute and in a shell command.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            let digits = [byte >> 4, byte & 15].map(|half| b"0123456789ABCDEF"[usize::from(half)]);
            encoded.extend(digits.map(char::from));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_each_known_parameter_once() {
        let query =
            Query::parse(Some("q=a+b%20c%C3%A7&limit=7&&kind=runtime"), &["q", "limit", "kind"]);
        let query = query.unwrap();
        assert_eq!(query.text("q"), Some("a b cç"));
        assert_eq!((query.limit().unwrap(), query.kind().unwrap()), (7, Some(Kind::Runtime)));
        assert_eq!(Query::parse(None, &[]).unwrap().limit().unwrap(), DEFAULT_LIMIT);
        for wrong in ["x=1", "q=1&q=2", "q=%", "q=%zz", "q=%ff"] {
            assert_eq!(Query::parse(Some(wrong), &["q"]).unwrap_err().status, 400, "{wrong}");
        }
        for wrong in ["limit=0", "limit=1001", "limit=-1", "limit=", "limit=+5", "limit=1e2"] {
            let query = Query::parse(Some(wrong), &["limit"]).unwrap();
            assert!(query.limit().is_err(), "{wrong}");
        }
        assert!(Query::parse(Some("kind=x"), &["kind"]).unwrap().kind().is_err());
    }

    #[test]
    fn decodes_what_it_encoded() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let encoded = encode(text);
            assert!(encoded.bytes().all(|byte| byte == b'%'
                || byte.is_ascii_alphanumeric()
                || b"-._~".contains(&byte)));
            assert_eq!(decode(&encoded).as_deref(), Some(text.as_str()));
        });
    }
}
