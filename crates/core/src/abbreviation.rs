//! Abbreviations: the beginning of the text form of an identity or an id, as tables print it.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::Identity;

/// The minimum length of an abbreviated identity, in characters: `lv` and 40 bits of the key.
pub const MIN_ABBREVIATION: usize = 10;

/// The length of an identity: `lv`, and base32 of 32 bytes and a checksum of 4.
const LENGTH: usize = 60;

/// The digits of a text form, and the width of a digit in bits.
#[derive(Clone, Copy)]
pub struct Digits {
    all: &'static str,
    bits: usize,
}

impl Digits {
    /// The digits of base32 in identities (RFC 4648, lower case).
    pub const BASE32: Self = Self { all: "abcdefghijklmnopqrstuvwxyz234567", bits: 5 };
    /// The digits of ids.
    pub const HEX: Self = Self { all: "0123456789abcdef", bits: 4 };
}

/// Returns true if `text` can be an abbreviated identity: `lv` and at least 8 characters of base32,
/// and not the whole.
pub fn is_abbreviation(text: &str) -> bool {
    let digits = text.strip_prefix("lv");
    (MIN_ABBREVIATION..LENGTH).contains(&text.len())
        && digits.is_some_and(|digits| digits.chars().all(|c| Digits::BASE32.all.contains(c)))
}

/// The shortest beginning of `text` that no other text in `all` has, with at least `min` bytes.
/// The texts are ASCII.
pub fn abbreviate<'a>(text: &'a str, min: usize, all: &BTreeSet<String>) -> &'a str {
    // In this order, the texts with the longest common beginning are the two neighbours.
    let before = all.range::<str, _>((Unbounded, Excluded(text))).next_back();
    let after = all.range::<str, _>((Excluded(text), Unbounded)).next();
    let common =
        |other: &String| text.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let shared = before.into_iter().chain(after).map(common).max();
    let length = shared.map_or(min, |shared| min.max(shared + 1));
    text.get(..length).unwrap_or(text)
}

/// The lowest and the highest key that begin with an abbreviated identity; `None` if `text` is
/// none. The last characters of an identity are a checksum, which the range does not cover.
pub fn identity_range(text: &str) -> Option<([u8; 32], [u8; 32])> {
    byte_range(text.strip_prefix("lv")?, Digits::BASE32)
}

/// The identities in `all` that begin with `text`.
pub fn with_beginning(all: impl IntoIterator<Item = Identity>, text: &str) -> BTreeSet<Identity> {
    all.into_iter().filter(|identity| identity.to_string().starts_with(text)).collect()
}

/// The lowest and the highest `N` bytes that begin with these digits; `None` if a character is not
/// a digit. Digits beyond `N` bytes are ignored.
pub fn byte_range<const N: usize>(text: &str, digits: Digits) -> Option<([u8; N], [u8; N])> {
    let width = digits.bits;
    let mut lowest = [0; N];
    let mut highest = [0xff; N];
    for (at, c) in text.chars().enumerate() {
        let value = digits.all.find(c)?;
        for bit in 0..width {
            let position = at * width + bit;
            let mask = 0x80 >> (position % 8);
            if value >> (width - 1 - bit) & 1 == 1 {
                *lowest.get_mut(position / 8).unwrap_or(&mut 0) |= mask;
            } else {
                *highest.get_mut(position / 8).unwrap_or(&mut 0) &= !mask;
            }
        }
    }
    Some((lowest, highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_a_range_of_bytes() {
        assert_eq!(byte_range::<2>("", Digits::HEX), Some(([0, 0], [255, 255])));
        assert_eq!(byte_range::<2>("a", Digits::HEX), Some(([0xa0, 0], [0xaf, 255])));
        assert_eq!(byte_range::<2>("a7ff12", Digits::HEX), Some(([0xa7, 0xff], [0xa7, 0xff])));
        assert_eq!(byte_range::<2>("x", Digits::HEX), None);
        let identity = Identity::from_bytes([0x5a; 32]);
        for length in [3, 10, 60] {
            let text: String = identity.to_string().chars().take(length).collect();
            let (lowest, highest) = identity_range(&text).unwrap();
            assert!(lowest <= *identity.as_bytes() && *identity.as_bytes() <= highest, "{text}");
        }
    }

    #[test]
    fn an_abbreviation_is_as_long_as_no_other_text_begins_alike() {
        let all: BTreeSet<String> = ["aabbccdd", "aabbccee", "bb"].map(str::to_owned).into();
        assert_eq!(abbreviate("aabbccdd", 4, &all), "aabbccd");
        assert_eq!(abbreviate("aabbccee", 8, &all), "aabbccee");
        assert_eq!(abbreviate("aabxxxxx", 1, &all), "aabx");
        assert_eq!(abbreviate("cc", 10, &all), "cc");
        assert_eq!(abbreviate("ccdd", 3, &BTreeSet::new()), "ccd");
    }

    #[test]
    fn an_abbreviation_has_40_bits_and_is_not_the_whole() {
        let whole = Identity::from_bytes([7; 32]).to_string();
        assert!(is_abbreviation(&whole[..10]) && is_abbreviation(&whole[..59]));
        for text in ["", "lv", &whole[..9], &whole, "lvABCDEFGH", "lvabcdefg1", "alice-name"] {
            assert!(!is_abbreviation(text), "{text}");
        }
    }
}
