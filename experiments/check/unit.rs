//! Units of figures, in pages and in rows.

/// The kind of a unit, within which units convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Base: a second.
    Time,
    /// Base: a byte.
    Bytes,
    /// Base: a byte per second.
    Rate,
    /// Base: one per second.
    Frequency,
    /// Base: one.
    Ratio,
}

/// A unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Its kind.
    pub kind: Kind,
    /// Its length in the kind's base.
    pub base: f64,
}

use Kind::{Bytes, Frequency, Rate, Ratio, Time};

/// Longer names before their beginnings.
const UNITS: [(&str, Kind, f64); 37] = [
    ("Mbit/s", Rate, 1e6 / 8.0),
    ("Gbit/s", Rate, 1e9 / 8.0),
    ("kB/s", Rate, 1e3),
    ("MB/s", Rate, 1e6),
    ("GB/s", Rate, 1e9),
    ("MiB/s", Rate, 1_048_576.0),
    ("GiB/s", Rate, 1_073_741_824.0),
    ("per second", Frequency, 1.0),
    ("a second", Frequency, 1.0),
    ("1/s", Frequency, 1.0),
    ("M/s", Frequency, 1e6),
    ("/s", Frequency, 1.0),
    ("MHz", Frequency, 1e6),
    ("GHz", Frequency, 1e9),
    ("Hz", Frequency, 1.0),
    ("KiB", Bytes, 1024.0),
    ("MiB", Bytes, 1_048_576.0),
    ("GiB", Bytes, 1_073_741_824.0),
    ("kB", Bytes, 1e3),
    ("KB", Bytes, 1e3),
    ("MB", Bytes, 1e6),
    ("GB", Bytes, 1e9),
    ("bytes", Bytes, 1.0),
    ("B", Bytes, 1.0),
    ("nanoseconds", Time, 1e-9),
    ("milliseconds", Time, 1e-3),
    ("seconds", Time, 1.0),
    ("minutes", Time, 60.0),
    ("hours", Time, 3600.0),
    ("min", Time, 60.0),
    ("ns", Time, 1e-9),
    ("µs", Time, 1e-6),
    ("ms", Time, 1e-3),
    ("s", Time, 1.0),
    ("times", Ratio, 1.0),
    ("%", Ratio, 0.01),
    ("1", Ratio, 1.0),
];

impl Unit {
    /// One, without a unit.
    pub const ONE: Self = Self { kind: Ratio, base: 1.0 };

    /// The unit that a text begins with, and its length; none if a letter follows it.
    pub fn prefix(text: &str) -> Option<(Self, usize)> {
        let begins = |(name, ..): &&(&str, Kind, f64)| {
            let rest = text.strip_prefix(name);
            *name != "1" && rest.is_some_and(|rest| !continues(rest))
        };
        let (name, kind, base) = UNITS.iter().find(begins)?;
        Some((Self { kind: *kind, base: *base }, name.len()))
    }

    /// The unit of a row; none if it does not convert.
    pub fn of_row(name: &str) -> Option<Self> {
        let (_, kind, base) = UNITS.iter().find(|(known, ..)| *known == name)?;
        Some(Self { kind: *kind, base: *base })
    }

    /// The unit that the name of a condition ends with: `rtt_ms`.
    pub fn of_condition(name: &str) -> Option<Self> {
        let end = name.rsplit('_').next()?;
        let name = match end {
            "us" => "µs",
            "mbit" => "Mbit/s",
            "kib" => "KiB",
            "hz" | "rate" => "Hz",
            "loss" | "share" => "times",
            "message" | "response" => "bytes",
            other => other,
        };
        Self::of_row(name)
    }
}

fn continues(rest: &str) -> bool {
    rest.chars().next().is_some_and(|next| next.is_alphanumeric() || next == '/')
}
