//! Range requests (RFC 9110 section 14).

use super::decimal;

/// The range of a body that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// The whole body: there is no range, or one that may be ignored because it is malformed, has
    /// another unit or several parts.
    Whole,
    /// From an offset up to, and excluding, another.
    Part(u64, u64),
    /// The range does not overlap the body.
    Unsatisfiable,
}

impl Range {
    /// Parses the value of `Range` for a body of `length` bytes.
    pub fn parse(value: Option<&[u8]>, length: u64) -> Self {
        let text = value.and_then(|value| str::from_utf8(value).ok());
        text.and_then(|text| parse(text, length)).unwrap_or(Self::Whole)
    }
}

fn parse(text: &str, length: u64) -> Option<Range> {
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| decimal::saturating(text.as_bytes());
    let (first, last) = set.trim().split_once('-')?;
    let (from, to) = match (first, last) {
        ("", suffix) => (length.saturating_sub(number(suffix)?), length),
        (first, "") => (number(first)?, length),
        (first, last) => {
            let first = number(first)?;
            let last = number(last)?;
            if first > last {
                return None;
            }
            (first, last.saturating_add(1).min(length))
        }
    };
    Some(if from < to { Range::Part(from, to) } else { Range::Unsatisfiable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ranges_as_rfc_9110_says() {
        for (text, range) in [
            ("bytes=0-0", Range::Part(0, 1)),
            ("bytes=0-", Range::Part(0, 10)),
            ("bytes=9-99", Range::Part(9, 10)),
            ("bytes=-3", Range::Part(7, 10)),
            ("bytes=-99", Range::Part(0, 10)),
            ("Bytes= 2-3", Range::Part(2, 4)),
            ("bytes=10-", Range::Unsatisfiable),
            ("bytes=-0", Range::Unsatisfiable),
            ("bytes=99999999999999999999-", Range::Unsatisfiable),
            ("bytes=0-99999999999999999999", Range::Part(0, 10)),
            ("bytes=3-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("lines=0-1", Range::Whole),
            ("bytes=-", Range::Whole),
            ("0-1", Range::Whole),
        ] {
            assert_eq!(Range::parse(Some(text.as_bytes()), 10), range, "{text}");
        }
        assert_eq!(Range::parse(None, 10), Range::Whole);
        assert_eq!(Range::parse(Some(b"bytes=0-"), 0), Range::Unsatisfiable);
    }

    #[test]
    fn a_part_lies_within_the_body() {
        bolero::check!().with_type::<(Vec<u8>, u64)>().for_each(|(value, length)| {
            if let Range::Part(from, to) = Range::parse(Some(value), *length) {
                assert!(from < to && to <= *length);
            }
        });
    }
}
