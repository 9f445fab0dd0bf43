//! UTF-8 as Java reads it.

use std::borrow::Cow;

/// The text of `bytes`, with U+FFFD for what is no UTF-8: one for each longest beginning of a character, as everywhere,
/// and one also for half of a surrogate pair (`ED A0 80`), which is three to others.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    // How many bytes of a surrogate are behind.
    let mut surrogate = 0;
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            surrogate = 0;
            text.push_str(chunk.valid());
        }
        surrogate = match (surrogate, chunk.invalid()) {
            (_, []) => 0,
            (_, [0xed]) => {
                text.push(char::REPLACEMENT_CHARACTER);
                1
            }
            (1, [0xa0..=0xbf]) => 2,
            (2, [0x80..=0xbf]) => 0,
            _ => {
                text.push(char::REPLACEMENT_CHARACTER);
                0
            }
        };
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_surrogate_pair_is_one_character() {
        for (bytes, text) in [
            (&b"a\xed\xa0\x80b"[..], "a\u{fffd}b"),
            (b"\xed\xa0\x80\xed\xb0\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\xa0\x80\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xed\xa0x\x80", "\u{fffd}x\u{fffd}"),
            (b"\xed", "\u{fffd}"),
            (b"\xed\xed\xa0\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\x9f\xbf", "\u{d7ff}"),
            (b"\xe2\x82A", "\u{fffd}A"),
            (b"\xe0\x80\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xff\xc0", "\u{fffd}\u{fffd}"),
            ("ç😀".as_bytes(), "ç😀"),
        ] {
            assert_eq!(decode(bytes), text, "{bytes:x?}");
        }
    }

    #[test]
    fn everything_else_is_as_everywhere() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if !bytes.contains(&0xed) {
                assert_eq!(decode(bytes), String::from_utf8_lossy(bytes));
            }
        });
    }
}
