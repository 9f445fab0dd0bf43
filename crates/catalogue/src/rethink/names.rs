//! Conversion and order of the names of reTHINK's catalogue.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::model::{ModelError, Name};

/// The name under which an object with this `objectName` is published: the same if it is a valid
/// [`Name`] without `%`. Otherwise each `%`, `/` and control character, or the dots of `.` and
/// `..`, are percent-encoded (RFC 3986 section 2.1). The mapping is injective.
///
/// # Errors
/// [`ModelError::Name`] if it is empty or too long.
pub fn published_name(object_name: &str) -> Result<Name, ModelError> {
    if !object_name.contains('%')
        && let Ok(name) = object_name.parse()
    {
        return Ok(name);
    }
    let dots = matches!(object_name, "." | "..");
    let mut encoded = String::with_capacity(object_name.len().min(crate::model::MAX_NAME));
    for c in object_name.chars() {
        if encoded.len() > crate::model::MAX_NAME {
            return Err(ModelError::Name);
        }
        if c == '%' || c == '/' || c.is_control() || (dots && c == '.') {
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

/// A name in the order of reTHINK's catalogue: by UTF-16 code units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Utf16Name(pub(super) Arc<str>);

impl Ord for Utf16Name {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Utf16Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of two texts by UTF-16 code units. It equals the order of their UTF-8 bytes except for
/// characters of four bytes: their surrogates (D800 to DFFF) precede the characters E000 to FFFF,
/// whose UTF-8 begins with EE or EF.
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
    fn valid_names_are_kept_and_others_encoded() {
        for name in ["Connector", "google.com", "Inner Name", "ç", "..."] {
            assert_eq!(published_name(name).unwrap().as_str(), name);
        }
        for (name, encoded) in [
            ("Inner Name/x", "Inner Name%2Fx"),
            ("Inner Name%2Fx", "Inner Name%252Fx"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("a\n\u{85}", "a%0A%C2%85"),
        ] {
            assert_eq!(published_name(name).unwrap().as_str(), encoded);
        }
        for name in ["", &"x".repeat(256), &"/".repeat(86), &"%".repeat(10_000_000)] {
            assert_eq!(published_name(name), Err(ModelError::Name));
        }
        assert!(published_name(&"/".repeat(85)).is_ok());
    }

    #[test]
    fn names_are_ordered_by_utf_16_code_units() {
        let mut names =
            ["b", "a", "😀", "\u{e000}", "\u{ffff}", "ç", "", "B", "aa", "\u{d7ff}", "😀a"];
        names.sort_by(|left, right| compare(left, right));
        let expected =
            ["", "B", "a", "aa", "b", "ç", "\u{d7ff}", "😀", "😀a", "\u{e000}", "\u{ffff}"];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_order_is_that_of_utf_16_and_encoded_names_are_unique() {
        bolero::check!().with_type::<(String, String)>().for_each(|(left, right)| {
            let expected = left.encode_utf16().cmp(right.encode_utf16());
            assert_eq!(compare(left, right), expected, "{left:?} {right:?}");
            if let (Ok(one), Ok(other)) = (published_name(left), published_name(right)) {
                assert_eq!(one == other, left == right, "{left:?} {right:?}");
            }
        });
    }
}
