//! The ends of the connections that use one segment of a pool, one after the other.
//!
//! Each connection of a segment is a *generation*. Its number is a part of every position in both
//! rings: an end of an earlier one that still writes or reads has positions that the ends of the
//! present one refuse as [`Corrupt`](crate::Corrupt).
//!
//! The segment can be used again when both sides have acknowledged the end of its generation. A
//! side acknowledges when none of its processes has the connection any more.

use crate::Side;
use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the stream in each direction for which a generation has numbers. A longer connection
/// uses the numbers of the generations after it.
const BITS: u32 = 40;
/// Generations before the numbers repeat.
const GENERATIONS: u64 = 1 << 21;

/// The end of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has not.
    Open,
    /// By close(2), with all bytes read.
    Closed,
    /// By a reset: bytes were unread.
    Reset,
    /// By a reset after the end of its stream.
    LateReset,
}

/// The shared words of the side of one process.
#[repr(C, align(64))]
#[derive(Default)]
struct Words {
    /// The last generation whose end was acknowledged.
    done: AtomicU64,
    /// An [`End`].
    end: AtomicU32,
    /// 1 once a fork has given the connection to several processes.
    is_shared: AtomicU32,
}

/// The shared words of both sides.
#[repr(C)]
#[derive(Default)]
pub struct Ends {
    /// The present generation; 0 before the first one.
    generation: AtomicU64,
    /// 1 for a connection to an address of IPv6.
    is_ipv6: AtomicU32,
    /// The number of the client's port among those that are bound for it.
    port: AtomicU32,
    sides: [Words; 2],
}

/// The first position of a generation, in both rings.
pub(crate) fn first_position(generation: u64) -> u64 {
    (generation % GENERATIONS) << BITS
}

/// The generation after one whose rings have reached these positions.
pub(crate) fn next(generation: u64, positions: [u64; 2]) -> u64 {
    let passed = |position: u64| (position >> BITS).wrapping_sub(generation) % GENERATIONS;
    // No connection carries more than this. A peer can have written any number.
    let plausible = |passed: &u64| *passed < 1 << 16;
    let passed = positions.into_iter().map(passed).filter(plausible).max();
    generation.wrapping_add(passed.unwrap_or(0)).wrapping_add(1)
}

impl Ends {
    fn of(&self, side: Side) -> &Words {
        &self.sides[side.outbound()]
    }

    /// The present generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins a generation. The caller has found that the segment is [free](Self::is_free), and has
    /// reset the rings.
    pub(crate) fn begin(&self, generation: u64) {
        for side in &self.sides {
            side.end.store(0, Ordering::Relaxed);
            side.is_shared.store(0, Ordering::Relaxed);
        }
        // The process that sees the number sees the rings as they were reset.
        self.generation.store(generation, Ordering::Release);
    }

    /// Notes the client's port, by its number among those that are bound for it, and the family of
    /// the address that it has connected to.
    pub fn set_address(&self, port: u8, is_ipv6: bool) {
        self.port.store(port.into(), Ordering::Relaxed);
        self.is_ipv6.store(is_ipv6.into(), Ordering::Relaxed);
    }

    /// The number of the client's port.
    pub fn port(&self) -> u8 {
        self.port.load(Ordering::Relaxed) as u8
    }

    /// Returns true if the client has connected to an address of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6.load(Ordering::Relaxed) != 0
    }

    /// Returns true if both sides have acknowledged the end of a generation.
    pub fn is_free(&self, generation: u64) -> bool {
        Side::BOTH.into_iter().all(|side| self.has_acknowledged(side, generation))
    }

    /// Returns true if a side has acknowledged the end of a generation.
    pub fn has_acknowledged(&self, side: Side, generation: u64) -> bool {
        // The caller sees what the side did last, and may overwrite it.
        self.of(side).done.load(Ordering::Acquire) == generation
    }

    /// Notes whether each process of a side that has the connection shows that it lives.
    pub fn set_shared(&self, side: Side, is_shared: bool) {
        self.of(side).is_shared.store(is_shared.into(), Ordering::SeqCst);
    }

    /// Returns true if each process of a side that has the connection shows that it lives.
    pub fn is_shared(&self, side: Side) -> bool {
        self.of(side).is_shared.load(Ordering::SeqCst) != 0
    }

    /// Acknowledges the end of a generation for a side. No thread of it uses the rings any more.
    pub fn acknowledge(&self, side: Side, generation: u64) {
        self.of(side).done.fetch_max(generation, Ordering::Release);
    }

    /// Notes how a side ends. The first end counts.
    pub fn end(&self, side: Side, end: End) {
        let word = &self.of(side).end;
        let _ = word.compare_exchange(0, end as u32, Ordering::Release, Ordering::Relaxed);
    }

    /// The end of a side, if it has one.
    pub fn ended(&self, side: Side) -> End {
        match self.of(side).end.load(Ordering::Acquire) {
            0 => End::Open,
            1 => End::Closed,
            2 => End::Reset,
            _ => End::LateReset,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_free_when_both_sides_have_acknowledged() {
        let ends = Ends::default();
        ends.begin(1);
        assert!(!ends.is_free(1));
        ends.acknowledge(Side::Connector, 1);
        assert!(!ends.is_free(1));
        ends.acknowledge(Side::Acceptor, 1);
        assert!(ends.is_free(1));
        ends.begin(2);
        assert!(!ends.is_free(2) && ends.generation() == 2);
    }

    #[test]
    fn the_first_end_of_a_side_counts() {
        let ends = Ends::default();
        assert_eq!(ends.ended(Side::Acceptor), End::Open);
        for end in [End::Closed, End::Reset, End::LateReset] {
            ends.end(Side::Acceptor, end);
            ends.end(Side::Acceptor, End::Closed);
            assert_eq!(ends.ended(Side::Acceptor), end);
            assert_eq!(ends.ended(Side::Connector), End::Open);
            ends.begin(1);
            assert_eq!(ends.ended(Side::Acceptor), End::Open);
        }
    }

    #[test]
    fn positions_of_generations_are_apart() {
        for generation in [1, 2, GENERATIONS - 1, GENERATIONS, u64::MAX - 1] {
            let first = first_position(generation);
            assert!(first < crate::layout::MAX_POSITION / 2);
            assert_eq!(next(generation, [first, first]), generation + 1);
            let short = first + (1 << 30);
            assert_eq!(next(generation, [short, first]), generation + 1);
            let long = first + (5 << BITS);
            let after = next(generation, [first, long]);
            assert_eq!(after, generation.wrapping_add(6));
            // A hostile peer writes anything.
            assert_eq!(next(generation, [first, first.wrapping_sub(1 << BITS)]), generation + 1);
        }
    }
}
