//! Durations in text form: a whole number and a unit, or two of them.

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

/// Writes a duration for people, in its two largest units: `10m`, `1h 23m`, `7d`; up to 99 seconds
/// in seconds, and below 10 seconds with one decimal if it is not whole: `0.3s`.
///
/// [`parse_duration`] reads the texts with one whole unit.
pub fn format_duration(duration: Duration) -> String {
    let secs = duration.as_secs();
    let tenths = duration.subsec_millis() / 100;
    if secs < 10 && tenths > 0 {
        return format!("{secs}.{tenths}s");
    }
    if secs < 100 && !secs.is_multiple_of(60) {
        return format!("{secs}s");
    }
    let largest = UNITS.iter().position(|(_, unit)| secs >= *unit).unwrap_or(UNITS.len() - 1);
    let (name, unit) = UNITS[largest];
    let first = format!("{}{name}", secs / unit);
    let Some((name, smaller)) = UNITS.get(largest + 1) else { return first };
    match secs % unit / smaller {
        0 => first,
        rest => format!("{first} {rest}{name}"),
    }
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
    fn durations_are_written_in_two_units() {
        let millis = [
            (0, "0s"),
            (340, "0.3s"),
            (9_990, "9.9s"),
            (12_700, "12s"),
            (60_000, "1m"),
            (100_000, "1m 40s"),
            (5_025_000, "1h 23m"),
            (93_784_000, "1d 2h"),
            (86_460_000, "1d"),
        ];
        for (millis, text) in millis {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
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
                assert!(!format_duration(duration).is_empty());
            }
        });
    }
}
