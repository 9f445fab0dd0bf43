//! Variable-length integers (RFC 9000 section 16): the two highest bits of the first byte encode
//! the length, 1, 2, 4 or 8 bytes.

/// The largest number: 2^62 - 1.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// How many bytes `value` takes.
#[inline]
pub(crate) fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value`, which is at most [`MAX`].
pub(crate) fn put(buffer: &mut Vec<u8>, value: u64) {
    let (word, length) = word(value);
    buffer.extend_from_slice(&word.to_le_bytes()[..length]);
}

/// Takes a number from the front of `rest`; None if it is truncated.
#[inline]
pub(crate) fn take(rest: &mut &[u8]) -> Option<u64> {
    let value = match *rest {
        [first @ 0..=0x3f, tail @ ..] => {
            *rest = tail;
            return Some(u64::from(*first));
        }
        [0x40..=0x7f, ..] => u64::from(u16::from_be_bytes(front(rest)?) & 0x3fff),
        [0x80..=0xbf, ..] => u64::from(u32::from_be_bytes(front(rest)?) & 0x3fff_ffff),
        _ => u64::from_be_bytes(front(rest)?) & MAX,
    };
    Some(value)
}

fn front<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*bytes)
}

/// The bytes of `value`, which is at most [`MAX`], as a little-endian number, and how many they
/// are.
#[inline]
pub(crate) fn word(value: u64) -> (u64, usize) {
    debug_assert!(value <= MAX);
    let length = len(value);
    let tag = (length.trailing_zeros() as u64) << 62;
    (((value << (64 - 8 * length as u32)) | tag).swap_bytes(), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        bolero::check!().with_type::<(u64, u8)>().for_each(|&(number, shift)| {
            let number = (number & MAX) >> (shift % 62);
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert_eq!(bytes.len(), len(number));
            let mut rest = bytes.as_slice();
            assert_eq!(take(&mut rest), Some(number));
            assert!(rest.is_empty());
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        });
    }

    /// RFC 9000 appendix A.1.
    #[test]
    fn examples_of_rfc_9000() {
        for (bytes, number) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            assert_eq!(take(&mut &bytes[..]), Some(number));
        }
    }
}
