//! What words without quotes are: above all, which of them are numbers.

use super::Value;

/// From this many characters on a number is a text: the original's reader looked no further.
pub(super) const TOO_LONG_FOR_A_NUMBER: usize = 1024;

/// What a word without quotes is.
pub(super) fn word_value(word: &str) -> Value {
    if word.eq_ignore_ascii_case("true") {
        return Value::Flag(true);
    }
    if word.eq_ignore_ascii_case("false") {
        return Value::Flag(false);
    }
    if word.eq_ignore_ascii_case("null") {
        return Value::Null;
    }
    number(word).map_or_else(|| Value::Text(word.to_owned()), Value::Number)
}

/// The number that `word` is by RFC 8259, as it is written out again: what fits into 64 bits by its value, so that
/// `-0` is `0`, and everything else as it stands.
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
        Some(fraction) => split_some_digits(fraction)?,
        None => rest,
    };
    let rest = match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => split_some_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))?,
        None => rest,
    };
    rest.is_empty().then(|| word.to_owned())
}

/// The value of `digits` if it fits into 64 bits. `None` if they begin no number: there are none, or too many zeros
/// in front.
///
/// The original counted in 64 bits and wrapped around; where it came to 0 in between, it saw a zero in front.
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

/// What follows the digits that `text` begins with; `None` if it begins with none.
fn split_some_digits(text: &str) -> Option<&str> {
    let (digits, rest) = split_digits(text);
    (!digits.is_empty()).then_some(rest)
}
