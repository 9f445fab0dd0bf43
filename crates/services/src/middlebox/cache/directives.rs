//! The field Cache-Control (RFC 9111 section 5.2).

use hyper::header::{self, HeaderMap};

/// The directives of a message. Names are compared without case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Directives(Vec<(String, Option<String>)>);

/// A field Cache-Control that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The value of a directive such as max-age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seconds {
    Absent,
    Given(u64),
    /// No number, or several different ones.
    Invalid,
}

/// The longest time of a directive, in seconds (RFC 9111 section 1.2.2).
const MAX_SECONDS: u64 = 1 << 31;

impl Directives {
    /// The directives of a message; without the field, `Pragma: no-cache` has the same effect (RFC
    /// 9111 section 5.4).
    pub(super) fn of(fields: &HeaderMap) -> Result<Self, Unreadable> {
        let mut all = Vec::new();
        for value in fields.get_all(header::CACHE_CONTROL) {
            take_list(value.to_str().map_err(|_| Unreadable)?, &mut all)?;
        }
        if all.is_empty() {
            let pragma = fields.get_all(header::PRAGMA);
            let mut pragma = pragma.iter().filter_map(|value| value.to_str().ok());
            if pragma.any(|value| value.to_ascii_lowercase().contains("no-cache")) {
                all.push(("no-cache".to_owned(), None));
            }
        }
        Ok(Self(all))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    pub(super) fn seconds(&self, name: &str) -> Seconds {
        let mut values = self.0.iter().filter(|(known, _)| known == name);
        let Some((_, first)) = values.next() else { return Seconds::Absent };
        if values.any(|(_, other)| other != first) {
            return Seconds::Invalid;
        }
        first.as_deref().and_then(seconds).map_or(Seconds::Invalid, Seconds::Given)
    }
}

/// A time in seconds; one that is too long for a number is cut.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().map_or(MAX_SECONDS, |value: u64| value.min(MAX_SECONDS)))
}

/// `name`, `name=token` or `name="text"`, separated by commas.
fn take_list(mut text: &str, all: &mut Vec<(String, Option<String>)>) -> Result<(), Unreadable> {
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if text.is_empty() {
            return Ok(());
        }
        let end = text.find(['=', ',', ' ', '\t']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if !is_token(name) {
            return Err(Unreadable);
        }
        let (value, rest) = match rest.trim_start_matches([' ', '\t']).strip_prefix('=') {
            Some(rest) => take_value(rest.trim_start_matches([' ', '\t']))?,
            None => (None, rest),
        };
        all.push((name.to_ascii_lowercase(), value));
        text = rest.trim_start_matches([' ', '\t']);
        if !text.is_empty() && !text.starts_with(',') {
            return Err(Unreadable);
        }
    }
}

/// A token (RFC 9110 section 5.6.2): `no-store;` is none, and what it means is unknown.
fn is_token(text: &str) -> bool {
    let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(of_token)
}

fn take_value(text: &str) -> Result<(Option<String>, &str), Unreadable> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        // `max-age=` is known, and has no number.
        let read = value.is_empty() || is_token(value);
        return if read { Ok((Some(value.to_owned()), rest)) } else { Err(Unreadable) };
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((Some(value), &quoted[at + 1..])),
            '\\' => value.push(chars.next().ok_or(Unreadable)?.1),
            other => value.push(other),
        }
    }
    Err(Unreadable)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn directives(values: &[&str]) -> Result<Directives, Unreadable> {
        let mut fields = HeaderMap::new();
        for value in values {
            let (name, value) = value.split_once(": ").unwrap_or(("cache-control", value));
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            fields.append(name, HeaderValue::from_str(value).unwrap());
        }
        Directives::of(&fields)
    }

    #[test]
    fn directives_are_read_without_case_and_with_quotes() {
        let all = directives(&["Max-Age=60 , PRIVATE=\"a, no-store\\\"\"", ",no-cache,"]).unwrap();
        assert_eq!(all.seconds("max-age"), Seconds::Given(60));
        assert!(all.has("private") && all.has("no-cache") && !all.has("no-store"));
        assert!(directives(&["pragma: No-Cache"]).unwrap().has("no-cache"));
        assert!(!directives(&["pragma: no-cache", "max-age=1"]).unwrap().has("no-cache"));
        for wrong in [
            "=1",
            "a=\"b",
            "a b",
            "a=b\"c",
            "\"a\"",
            "a=\"b\"c",
            "a=\"\\",
            "no-store;",
            "private;a",
            "a=b;c",
        ] {
            assert_eq!(directives(&[wrong]), Err(Unreadable), "{wrong}");
        }
    }

    #[test]
    fn times_that_are_wrong_contradictory_or_too_long_are_told_apart() {
        let seconds = |values: &[&str]| directives(values).unwrap().seconds("max-age");
        assert_eq!(seconds(&["no-store"]), Seconds::Absent);
        assert_eq!(seconds(&["max-age=99999999999999999999"]), Seconds::Given(MAX_SECONDS));
        assert_eq!(seconds(&["max-age=5, max-age=5"]), Seconds::Given(5));
        assert_eq!(seconds(&["max-age=\"5\""]), Seconds::Given(5));
        for wrong in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=5, max-age=6"] {
            assert_eq!(seconds(&[wrong]), Seconds::Invalid, "{wrong}");
        }
    }

    #[test]
    fn arbitrary_fields_never_panic() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let mut all = Vec::new();
            let _ = take_list(text, &mut all);
            assert!(all.len() <= text.len());
        });
    }
}
