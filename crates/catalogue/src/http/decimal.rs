//! Decimal numbers in requests: ASCII digits only, without a sign.

/// A number; `None` if the text is not a number, or does not fit.
pub(super) fn exact(text: &[u8]) -> Option<u64> {
    digits(text)?.parse().ok()
}

/// A number, or `u64::MAX` if it does not fit; `None` if the text is not a number.
pub(super) fn saturating(text: &[u8]) -> Option<u64> {
    Some(digits(text)?.parse().unwrap_or(u64::MAX))
}

fn digits(text: &[u8]) -> Option<&str> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if is_number { str::from_utf8(text).ok() } else { None }
}
