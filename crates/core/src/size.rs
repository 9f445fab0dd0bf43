//! Numbers of bytes as people write and read them.

use thiserror::Error;

/// Not a number of bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "not a size: a number of bytes, such as 500K or 10M (powers of 1000), or 64Ki or 1Gi (powers of 1024)"
)]
pub struct SizeError;

/// Reads a number of bytes: digits, with K, M, G or T for powers of 1000 (SI), or Ki, Mi, Gi or Ti
/// for powers of 1024 (IEC 80000-13).
///
/// # Errors
/// [`SizeError`], also for zero and for 2^64 and more.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (base, power) = match unit {
        "" => (1, 0),
        "K" => (1000, 1),
        "M" => (1000, 2),
        "G" => (1000, 3),
        "T" => (1000, 4),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        _ => return Err(SizeError),
    };
    let count: u64 = digits.parse().map_err(|_| SizeError)?;
    let bytes = count.checked_mul(u64::pow(base, power)).ok_or(SizeError)?;
    if bytes == 0 { Err(SizeError) } else { Ok(bytes) }
}

/// Writes a number of bytes for people, in powers of 1000 (SI) with one decimal: `1 byte`,
/// `999 bytes`, `5.0 MB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" });
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // 999.95 would be written as 1000.0.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_with_one_decimal() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1.0 kB"),
            (1550, "1.6 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (5_000_000, "5.0 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(format_size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn sizes_are_decimal_or_binary() {
        for (text, bytes) in [
            ("1", 1),
            ("4K", 4000),
            ("4Ki", 4 << 10),
            ("64M", 64_000_000),
            ("64Mi", 64 << 20),
            ("2G", 2_000_000_000),
            ("2Gi", 2 << 30),
            ("1T", 1_000_000_000_000),
            ("1Ti", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in [
            "",
            "K",
            "0",
            "0K",
            "-1",
            "+1",
            "1k",
            "1ki",
            "1KiB",
            "1KB",
            "1.5M",
            "1 M",
            "1é",
            "99999999999999G",
            "18446744073709551616",
        ] {
            assert_eq!(parse_size(wrong), Err(SizeError), "{wrong}");
        }
    }
}
