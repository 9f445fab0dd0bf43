//! Which keys a path may name.

use levada_core::Identity;

/// Whether an honest party can have this key: a canonical encoding (RFC 8032 section 5.1.3), and
/// not one of the eight points of small order, under which a signature can verify that no secret
/// key made.
pub(super) fn is_usable(identity: &Identity) -> bool {
    const ORDER_8: [[u8; 32]; 2] = [
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10,
            0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77,
            0x92, 0xac, 0x03, 0x7a,
        ],
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef,
            0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88,
            0x6d, 0x53, 0xfc, 0x05,
        ],
    ];
    let mut y = *identity.as_bytes();
    y[31] &= 0x7f;
    let middle_full = y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f;
    // p is 2^255 - 19: from 0xed on, the encoding is not canonical; 0xec is p - 1, of order 2.
    let near_p = middle_full && y[0] >= 0xec;
    let tiny = y[1..].iter().all(|byte| *byte == 0) && y[0] <= 1;
    !near_p && !tiny && !ORDER_8.contains(&y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_small_order_and_other_encodings_are_no_keys() {
        let mut order_two = [0xff; 32];
        order_two[0] = 0xec;
        order_two[31] = 0x7f;
        let mut other = order_two;
        other[0] = 0xf1;
        let one = {
            let mut bytes = [0; 32];
            (bytes[0], bytes[31]) = (1, 0x80);
            bytes
        };
        for bytes in [order_two, other, one, [0; 32]] {
            assert!(!is_usable(&Identity::from_bytes(bytes)));
        }
        assert!(is_usable(&Identity::from_bytes([7; 32])));
    }
}
