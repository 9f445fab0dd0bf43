//! Command-line values with units.

use std::time::Duration;

use crate::Loss;

/// `20ms`, `500us`, `1.5s`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = number(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .ok_or("write a number and us, ms or s, as 20ms")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// `100mbit`, `8kbit`, `1gbit`, `500bit`, in bits per second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    number(text, &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)])
        .map(|rate| rate as u64)
        .ok_or_else(|| "write a number and bit, kbit, mbit or gbit, as 100mbit".to_owned())
}

/// `64k`, `1m` (of 1024), `3000`, in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    number(text, &[("k", 1024.0), ("m", 1024.0 * 1024.0), ("", 1.0)])
        .map(|bytes| bytes as u64)
        .ok_or_else(|| "write a number of bytes, or one with k or m, as 64k".to_owned())
}

/// `1%`, or `1%,25%` and up to two more: to the bad state, back, loss in the bad state (else 100%),
/// in the good (else 0%).
pub(super) fn chance_or_bursts(text: &str) -> Result<Loss, String> {
    let chances = text
        .split(',')
        .map(|part| number(part, &[("%", 0.01), ("", 1.0)]).filter(|chance| *chance <= 1.0))
        .collect::<Option<Vec<f64>>>()
        .ok_or("write a probability, as 1%, or two to four with commas between")?;
    match chances[..] {
        [loss] => Ok(Loss::Bernoulli(loss)),
        [to_bad, to_good, ref losses @ ..] if losses.len() <= 2 => Ok(Loss::GilbertElliott {
            to_bad,
            to_good,
            loss_bad: losses.first().copied().unwrap_or(1.0),
            loss_good: losses.get(1).copied().unwrap_or(0.0),
        }),
        _ => Err("at most four probabilities".to_owned()),
    }
}

/// A non-negative number times the factor of its unit.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    let (_, factor) = units.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    let number: f64 = digits.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("0us"), Ok(Duration::ZERO));
        assert_eq!(rate("100Mbit"), Ok(100_000_000));
        assert_eq!(rate("500bit"), Ok(500));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("3000"), Ok(3000));
        for wrong in ["", "20", "ms", "-1ms", "1e400s", "infs", "1 day"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert!(rate("100").is_err() && size("5x").is_err());
    }

    #[test]
    fn losses_are_single_or_in_bursts() {
        assert_eq!(chance_or_bursts("1%"), Ok(Loss::Bernoulli(0.01)));
        assert_eq!(chance_or_bursts("0.5"), Ok(Loss::Bernoulli(0.5)));
        let bursts =
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        assert_eq!(chance_or_bursts("1%,25%"), Ok(bursts));
        for wrong in ["101%", "1%,", "1%,1%,1%,1%,1%", "x"] {
            assert!(chance_or_bursts(wrong).is_err(), "{wrong}");
        }
    }
}
