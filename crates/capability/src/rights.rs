//! The rights of a capability: execute, terminate, distribute.

use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;
use thiserror::Error;

/// A text that is not a set of rights.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("rights are one or more of x (execute), t (terminate) and d (distribute), each once")]
pub struct RightsError;

/// A set of rights, never empty. Written as letters: `x` execute, `t` terminate, `d` distribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

const NAMES: [(Rights, char, &str); 3] = [
    (Rights::EXECUTE, 'x', "execute"),
    (Rights::TERMINATE, 't', "terminate"),
    (Rights::DISTRIBUTE, 'd', "distribute"),
];

impl Rights {
    /// Start the session and attach to it.
    pub const EXECUTE: Self = Self(1);
    /// End the session.
    pub const TERMINATE: Self = Self(2);
    /// Delegate the capability, narrowed or not.
    pub const DISTRIBUTE: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// The set with this encoding; `None` if it is empty or has an undefined bit.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if byte == 0 || byte & !Self::ALL.0 != 0 { None } else { Some(Self(byte)) }
    }

    /// The encoding: the sum of execute 1, terminate 2 and distribute 4.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Whether every right of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the rights in this set: "execute", "terminate", "distribute", in this order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.present().map(|(_, _, name)| name)
    }

    fn present(self) -> impl Iterator<Item = (Self, char, &'static str)> {
        NAMES.into_iter().filter(move |(right, _, _)| self.contains(*right))
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.present().try_for_each(|(_, letter, _)| write!(f, "{letter}"))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Rights {
    type Err = RightsError;

    /// Parses letters in any order. An empty text and repeated or unknown letters are refused.
    fn from_str(text: &str) -> Result<Self, RightsError> {
        let mut byte = 0;
        for letter in text.chars() {
            let (right, ..) =
                NAMES.into_iter().find(|(_, known, _)| *known == letter).ok_or(RightsError)?;
            if byte & right.0 != 0 {
                return Err(RightsError);
            }
            byte |= right.0;
        }
        Self::from_byte(byte).ok_or(RightsError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_round_trips_as_byte_and_text() {
        for byte in 1..=7 {
            let rights = Rights::from_byte(byte).unwrap();
            assert_eq!(rights.byte(), byte);
            assert_eq!(rights.to_string().parse(), Ok(rights));
        }
        assert_eq!((0..=255).filter_map(Rights::from_byte).count(), 7);
    }

    #[test]
    fn parses_letters_in_any_order_and_nothing_else() {
        assert_eq!("dxt".parse(), Ok(Rights::ALL));
        assert_eq!("dx".parse::<Rights>().unwrap().to_string(), "xd");
        for text in ["", "xx", "X", "x ", "xtdx", "y"] {
            assert_eq!(text.parse::<Rights>(), Err(RightsError), "{text}");
        }
    }

    #[test]
    fn a_set_contains_only_its_members() {
        let both = Rights::EXECUTE | Rights::DISTRIBUTE;
        assert!(both.contains(Rights::EXECUTE) && both.contains(both));
        assert!(!both.contains(Rights::TERMINATE) && !both.contains(Rights::ALL));
        assert_eq!(both.names().collect::<Vec<_>>(), ["execute", "distribute"]);
    }
}
