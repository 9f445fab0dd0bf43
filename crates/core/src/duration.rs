//! Durations in text form: a whole number and a unit.

use std::time::Duration;
use thiserror::Error;

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
/// A hundred years, in seconds. Sums of times stay far from overflow.
const MAX_SECS: u64 = 100 * 366 * 86_400;

/// A text that is not a duration.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("a duration is a whole number and a unit, such as 90s, 10m, 1h or 7d, from 1s to 36600d")]
pub struct DurationError;

/// Reads `90s`, `10m`, `1h` or `7d`.
///
/// # Errors
/// [`DurationError`] for anything else, for zero and for more than a hundred years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let unit = text.chars().last().ok_or(DurationError)?;
    let (_, secs) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError)?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationError);
    }
    let count: u64 = digits.parse().map_err(|_| DurationError)?;
    match count.checked_mul(*secs) {
        Some(total @ 1..=MAX_SECS) => Ok(Duration::from_secs(total)),
        _ => Err(DurationError),
    }
}

/// Writes whole seconds in the largest unit that fits, as [`parse_duration`] reads them.
pub fn format_duration(duration: Duration) -> String {
    let secs = duration.as_secs();
    let fits = |unit: u64| secs >= unit && secs.is_multiple_of(unit);
    let (name, unit) = UNITS.iter().copied().find(|(_, unit)| fits(*unit)).unwrap_or(('s', 1));
    format!("{}{name}", secs / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for (text, secs) in [("90s", 90), ("10m", 600), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(secs)));
            assert_eq!(format_duration(Duration::from_secs(secs)), text);
        }
    }

    #[test]
    fn invalid_texts_are_refused() {
        for text in [
            "",
            "10",
            "h",
            "1 h",
            "-1h",
            "+1h",
            "1.5h",
            "0s",
            "1w",
            "1é",
            "36601d",
            "99999999999999999999s",
            "500000000000000000d",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError), "{text}");
        }
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(duration) = parse_duration(text) {
                assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            }
        });
    }
}
