//! The values of words without quotes: keywords, numbers and texts.

use crate::rethink::Value;

/// Numbers of this many characters or more are texts, because of the buffer size of reTHINK's
/// parser.
pub(super) const TOO_LONG_FOR_A_NUMBER: usize = 1024;

/// The value of a word without quotes.
pub(super) fn word_value(word: &str) -> Value {
    if word.eq_ignore_ascii_case("true") {
        return Value::Bool(true);
    }
    if word.eq_ignore_ascii_case("false") {
        return Value::Bool(false);
    }
    if word.eq_ignore_ascii_case("null") {
        return Value::Null;
    }
    number(word).map_or_else(|| Value::Text(word.to_owned()), Value::Number)
}

/// The text of `word` if it is a number by RFC 8259. Integers that fit into 64 bits are normalised,
/// so that `-0` is `0`; other numbers keep their form.
fn number(word: &str) -> Option<String> {
    if word.len() >= TOO_LONG_FOR_A_NUMBER {
        return None;
    }
    let magnitude = word.strip_prefix('-').unwrap_or(word);
    let (digits, rest) = split_digits(magnitude);
    let integer = integer(digits, magnitude.len() < word.len())?;
    if rest.is_empty() {
        return Some(integer.map_or_else(|| word.to_owned(), |value| value.to_string()));
    }
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => skip_digits(fraction)?,
        None => rest,
    };
    let rest = match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => skip_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))?,
        None => rest,
    };
    rest.is_empty().then(|| word.to_owned())
}

/// `Some(Some(value))` if `digits` fit into 64 bits, and `Some(None)` if not. `None` if they are
/// not the integer part of a number: they are empty or have a leading zero.
///
/// reTHINK's parser accumulated the value in 64 bits with wrapping. If an intermediate value is 0,
/// the next digit follows what it takes for a leading zero.
fn integer(digits: &str, negative: bool) -> Option<Option<i64>> {
    let mut bytes = digits.bytes().map(|byte| i64::from(byte - b'0'));
    let mut value = -bytes.next()?;
    let mut fits = true;
    for digit in bytes {
        if value == 0 {
            return None;
        }
        fits =
            fits && value.checked_mul(10).and_then(|tenfold| tenfold.checked_sub(digit)).is_some();
        value = value.wrapping_mul(10).wrapping_sub(digit);
    }
    if !fits {
        return Some(None);
    }
    Some(if negative { Some(value) } else { value.checked_neg() })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The text after the digits at the start of `text`; `None` if there are no digits.
fn skip_digits(text: &str) -> Option<&str> {
    let (digits, rest) = split_digits(text);
    (!digits.is_empty()).then_some(rest)
}
