//! Decoding of UTF-8 by the rules of Java.

use std::borrow::Cow;

/// Decodes `bytes`, with U+FFFD for invalid sequences: one for each maximal prefix of a character,
/// as in Rust, but a single one for an unpaired surrogate (`ED A0 80`), which is three in Rust.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    // The number of bytes of a surrogate that were just decoded.
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
    fn an_unpaired_surrogate_is_one_replacement_character() {
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
    fn other_bytes_decode_as_in_rust() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if !bytes.contains(&0xed) {
                assert_eq!(decode(bytes), String::from_utf8_lossy(bytes));
            }
        });
    }
}
