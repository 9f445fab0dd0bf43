//! Bytes to send. Every tag has a stream of its own, which differs from its neighbours at every
//! position.

use std::sync::LazyLock;

/// A prime: no two positions whose distance is a multiple of a usual buffer size have the same
/// neighbours.
const PERIOD: usize = 65_521;
/// The most that one call returns.
pub const LONGEST: usize = 1 << 20;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut table = Vec::with_capacity(PERIOD + 8 + LONGEST);
    while table.len() < PERIOD {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        table.extend(state.to_ne_bytes());
    }
    table.truncate(PERIOD);
    while table.len() < PERIOD + LONGEST {
        let length = PERIOD.min(PERIOD + LONGEST - table.len());
        table.extend_from_within(..length);
    }
    table
});

/// The bytes of stream `tag` from position `from` on.
pub fn bytes(tag: u64, from: u64, length: usize) -> &'static [u8] {
    let period = PERIOD as u64;
    let start = (tag % period * 7919 + from % period) % period;
    &TABLE[start as usize..][..length]
}

/// FNV-1a, to name received bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Received bytes in an answer: the first ones as they are, all as a digest.
pub fn describe(bytes: &[u8]) -> String {
    let head: String = bytes.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("bytes={head}…{:08x}", digest(bytes) >> 32)
}
