//! Names: how the original sorted them, and what they are here.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::model::{ModelError, Name};

/// The name under which an object of the original is published: its own if that can be a segment of a path and has no
/// `%`, and otherwise the same with each `%`, `/` and control character, or the points of `.` and `..`,
/// percent-encoded (RFC 3986 section 2.1). No two share one.
///
/// # Errors
/// [`ModelError::Name`] if it is empty or too long.
pub fn name_of(object_name: &str) -> Result<Name, ModelError> {
    if !object_name.contains('%')
        && let Ok(name) = object_name.parse()
    {
        return Ok(name);
    }
    let step = matches!(object_name, "." | "..");
    let mut encoded = String::with_capacity(object_name.len().min(crate::model::MAX_NAME));
    for c in object_name.chars() {
        if encoded.len() > crate::model::MAX_NAME {
            return Err(ModelError::Name);
        }
        if c == '%' || c == '/' || c.is_control() || (step && c == '.') {
            percent_encode(c, &mut encoded);
        } else {
            encoded.push(c);
        }
    }
    encoded.parse()
}

fn percent_encode(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        out.push('%');
        let digits = [byte >> 4, byte & 0xf].map(|digit| char::from_digit(digit.into(), 16));
        out.extend(digits.into_iter().flatten().map(|digit| digit.to_ascii_uppercase()));
    }
}

/// A name that sorts as the original's did: by units of UTF-16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sorted(pub(super) Arc<str>);

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of two texts by units of UTF-16. It is that of their bytes in UTF-8, but for characters of four bytes:
/// their surrogates (D800 to DFFF) stand before what begins with EE or EF (E000 to FFFF).
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    let rank = |byte: u8| if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { byte };
    let mut pairs = left.bytes().zip(right.bytes());
    match pairs.find(|(left, right)| left != right) {
        Some((left, right)) => rank(left).cmp(&rank(right)),
        None => left.len().cmp(&right.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_stay_and_others_are_encoded() {
        for name in ["Connector", "google.com", "Inner Name", "ç", "..."] {
            assert_eq!(name_of(name).unwrap().as_str(), name);
        }
        for (name, encoded) in [
            ("Inner Name/x", "Inner Name%2Fx"),
            ("Inner Name%2Fx", "Inner Name%252Fx"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("a\n\u{85}", "a%0A%C2%85"),
        ] {
            assert_eq!(name_of(name).unwrap().as_str(), encoded);
        }
        for name in ["", &"x".repeat(256), &"/".repeat(86), &"%".repeat(10_000_000)] {
            assert_eq!(name_of(name), Err(ModelError::Name));
        }
        assert!(name_of(&"/".repeat(85)).is_ok());
    }

    #[test]
    fn names_sort_by_units_of_utf_16() {
        let mut names =
            ["b", "a", "😀", "\u{e000}", "\u{ffff}", "ç", "", "B", "aa", "\u{d7ff}", "😀a"];
        names.sort_by(|left, right| compare(left, right));
        let expected =
            ["", "B", "a", "aa", "b", "ç", "\u{d7ff}", "😀", "😀a", "\u{e000}", "\u{ffff}"];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_order_is_that_of_utf_16_for_all_texts_and_encoded_names_differ() {
        bolero::check!().with_type::<(String, String)>().for_each(|(left, right)| {
            let expected = left.encode_utf16().cmp(right.encode_utf16());
            assert_eq!(compare(left, right), expected, "{left:?} {right:?}");
            if let (Ok(one), Ok(other)) = (name_of(left), name_of(right)) {
                assert_eq!(one == other, left == right, "{left:?} {right:?}");
            }
        });
    }
}
