//! Framing: how a session's messages are packed into records.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How messages are packed into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Framing {
    /// A message is sent at once when the transport is idle, and batched with others while it is
    /// busy.
    #[default]
    Auto,
    /// Each record has exactly this many bytes on the wire (64..=4096), header and tag included.
    Block(u16),
}

/// A text that is not a framing.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("framing is `auto` or `block:N` with N from 64 to 4096")]
pub struct FramingError;

impl Framing {
    /// The allowed block lengths, in bytes on the wire.
    pub const BLOCK_LENGTHS: std::ops::RangeInclusive<u16> = 64..=4096;

    /// `block:length`.
    ///
    /// # Errors
    /// [`FramingError`] if `length` is outside [`Self::BLOCK_LENGTHS`].
    pub fn block(length: u16) -> Result<Self, FramingError> {
        if Self::BLOCK_LENGTHS.contains(&length) {
            Ok(Self::Block(length))
        } else {
            Err(FramingError)
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Block(length) => write!(f, "block:{length}"),
        }
    }
}

impl FromStr for Framing {
    type Err = FramingError;

    fn from_str(text: &str) -> Result<Self, FramingError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let digits = text.strip_prefix("block:").ok_or(FramingError)?;
        if digits.is_empty()
            || digits.starts_with('0')
            || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(FramingError);
        }
        Self::block(digits.parse().map_err(|_| FramingError)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_bounds_hold() {
        for text in ["auto", "block:64", "block:512", "block:4096"] {
            assert_eq!(text.parse::<Framing>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "Auto",
            "block:",
            "block:63",
            "block:4097",
            "block:064",
            "block:+64",
            "block:65600",
        ] {
            assert!(text.parse::<Framing>().is_err(), "{text}");
        }
    }
}
