//! Numbers and markers of a text.

use super::unit::Unit;

/// A number of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// As written.
    pub text: String,
    /// Its value.
    pub value: f64,
    /// The difference below which another value is written in the same way.
    pub tolerance: f64,
    /// The unit behind it.
    pub unit: Option<Unit>,
    /// Marked with `!`, as figures of flagged runs are.
    pub is_flagged: bool,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A number.
    Number(Number),
    /// The expressions of a marker.
    Marker(String),
}

/// The beginning and the end of a marker.
const MARKER: &str = "<!--xp:";
const COMMENT: &str = "<!--";
const END: &str = "-->";

/// The numbers and markers of a text, without those in code, in targets of links and in words.
pub fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with(COMMENT) {
            let end = rest.find(END).map_or(rest.len(), |end| end + END.len());
            let marker = rest[..end].strip_prefix(MARKER);
            parts.extend(marker.map(|inner| Part::Marker(inner.trim_end_matches(END).to_owned())));
            end
        } else if first == '`' {
            rest[1..].find('`').map_or(1, |end| end + 2)
        } else if rest.starts_with("](") {
            rest.find(')').map_or(2, |end| end + 1)
        } else if first.is_ascii_digit() && !joins(before) {
            let (number, length) = number(rest);
            parts.extend(number.map(Part::Number));
            length
        } else {
            first.len_utf8()
        };
        before = rest[..skipped].chars().last().unwrap_or(' ');
        rest = &rest[skipped..];
    }
    parts
}

/// Characters that join a digit to the word before it.
fn joins(before: char) -> bool {
    before.is_alphanumeric() || matches!(before, '_' | '.' | '-' | '/' | '#')
}

/// The number that a text begins with, and the length of what was read; none in `4th` and `2.12.1`.
fn number(text: &str) -> (Option<Number>, usize) {
    let length = digits(text);
    let plain: String = text[..length].chars().filter(|one| *one != ',').collect();
    let rest = &text[length..];
    let is_word = |rest: &str| {
        let mut next = rest.chars();
        let first = next.next();
        first.is_some_and(|one| one.is_alphabetic() || one == '_')
            || (first.is_some_and(|one| one == '-' || one == '.')
                && next.next().is_some_and(char::is_alphanumeric))
    };
    let spaces = rest.len() - rest.trim_start_matches([' ', '\u{a0}']).len();
    let unit = Unit::prefix(&rest[spaces..]);
    if unit.is_none() && is_word(rest) {
        let word = rest.find(|one: char| !one.is_alphanumeric() && !matches!(one, '-' | '.' | '_'));
        return (None, length + word.unwrap_or(rest.len()));
    }
    let behind = unit.map_or(0, |(_, length)| spaces + length);
    let is_flagged = rest[behind..].trim_start().starts_with('!');
    let value = plain.parse().unwrap_or(f64::NAN);
    let number = Number {
        text: text[..length + behind].to_owned(),
        value,
        tolerance: tolerance(&plain, value),
        unit: unit.map(|(unit, _)| unit),
        is_flagged,
    };
    (Some(number), length + behind)
}

/// The length of digits, with commas before three digits and one point.
fn digits(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    let mut has_point = false;
    loop {
        match bytes.get(at) {
            Some(byte) if byte.is_ascii_digit() => at += 1,
            Some(b',') if (1..4).all(|more| is_digit(at + more)) && !is_digit(at + 4) => at += 1,
            Some(b'.') if !has_point && is_digit(at + 1) => {
                has_point = true;
                at += 1;
            }
            _ => return at,
        }
    }
}

/// Half of the last digit that is written; zeros at the end of a number from 1,000 on may stand
/// for others, with three digits before them.
fn tolerance(plain: &str, value: f64) -> f64 {
    let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let zeros = plain.len() - plain.trim_end_matches('0').len();
    let rounded = if decimals == 0 && value >= 1000.0 { zeros.min(plain.len() - 3) } else { 0 };
    0.5 * 10f64.powi(rounded as i32 - decimals as i32) * (1.0 + 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Vec<(String, bool)> {
        let number = |part| match part {
            Part::Number(number) => Some((number.text, number.unit.is_some())),
            Part::Marker(_) => None,
        };
        parts(text).into_iter().filter_map(number).collect()
    }

    #[test]
    fn numbers_have_their_units_and_words_have_none() {
        let text = "From 1,024 B, X25519 and `4 ms` of [5 s](a/6.md): 1.5 to 95% at 10 Mbit/s, p99";
        let found = numbers(text);
        let expected =
            [("1,024 B", true), ("5 s", true), ("1.5", false), ("95%", true), ("10 Mbit/s", true)];
        assert_eq!(found, expected.map(|(text, unit)| (text.to_owned(), unit)));
        assert_eq!(numbers("the 4th of 2.12.1 in 3-byte steps"), []);
    }

    #[test]
    fn a_marker_has_the_expressions_of_the_numbers_before_it() {
        let found = parts("1.42 times<!--xp:ab/cd--> and 3 ms !<!--xp:ef.p99-->");
        let marker = |text: &str| Part::Marker(text.to_owned());
        assert_eq!((&found[1], &found[3]), (&marker("ab/cd"), &marker("ef.p99")));
        let Part::Number(last) = &found[2] else { panic!("{found:?}") };
        assert!(last.is_flagged && last.tolerance < 0.51, "{last:?}");
    }
}
