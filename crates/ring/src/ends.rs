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

/// The processes that may have one side: the one that has made it, and those that were forked.
pub const HOLDERS: usize = 8;

/// The end of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has not.
    Open,
    /// By close(2), with all bytes read.
    Closed,
    /// By a reset: bytes were unread.
    Reset,
}

/// The shared words of the side of one process.
#[repr(C, align(64))]
#[derive(Default)]
struct Words {
    /// The last generation whose end was acknowledged.
    done: AtomicU64,
    /// An [`End`].
    end: AtomicU32,
    /// Processes that have this side, by their numbers; 0 for none.
    holders: [AtomicU32; HOLDERS],
    /// 1 once more processes had it than there are places.
    is_crowded: AtomicU32,
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
    /// The last generation that a listener has taken.
    accepted: AtomicU64,
    /// In the first segment of a pool: 1 once the process that listens can find the pool.
    is_ready: AtomicU32,
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
            side.is_crowded.store(0, Ordering::Relaxed);
            side.holders.iter().for_each(|holder| holder.store(0, Ordering::Relaxed));
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
        // The caller sees what both sides did last, and may overwrite it.
        self.sides.iter().all(|side| side.done.load(Ordering::Acquire) == generation)
    }

    /// Notes, in the first segment, that the process that listens can find the pool.
    pub fn set_ready(&self) {
        self.is_ready.store(1, Ordering::Release);
    }

    /// Returns true once an entry of the client finds its pool. Reads the first segment.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire) != 0
    }

    /// Takes the connection for a process that listens. Returns false if the connection was taken
    /// before, or has ended at both sides: then the entry of the queue is not one of its client.
    pub fn accept(&self, generation: u64) -> bool {
        self.accepted.swap(generation, Ordering::AcqRel) != generation && !self.is_free(generation)
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
            _ => End::Reset,
        }
    }

    /// A process has the side from now on.
    pub fn hold(&self, side: Side, process: u32) {
        let words = self.of(side);
        let take = |place: &AtomicU32| {
            place.compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !words.holders.iter().any(take) {
            words.is_crowded.store(1, Ordering::Release);
        }
    }

    /// A process has the side no more.
    pub fn release(&self, side: Side, process: u32) {
        let give = |place: &AtomicU32| {
            place.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.of(side).holders.iter().any(give);
    }

    /// Returns true once a process has the side. Before, it is that which listens.
    pub fn has_holder(&self, side: Side) -> bool {
        let mut holders = self.of(side).holders.iter();
        holders.any(|place| place.load(Ordering::Acquire) != 0)
    }

    /// Returns true if a process has the side of which `is_alive` returns true, or if that is not
    /// known.
    pub fn is_held(&self, side: Side, is_alive: impl Fn(u32) -> bool) -> bool {
        let words = self.of(side);
        let holders = words.holders.iter().map(|place| place.load(Ordering::Acquire));
        words.is_crowded.load(Ordering::Acquire) != 0
            || holders.into_iter().any(|holder| holder != 0 && is_alive(holder))
    }

    /// Acknowledges the end of a generation for each side whose processes were all killed.
    pub fn reclaim(&self, generation: u64, is_alive: impl Fn(u32) -> bool) {
        for side in [Side::Connector, Side::Acceptor] {
            let is_open = self.of(side).done.load(Ordering::Acquire) != generation;
            if is_open && self.has_holder(side) && !self.is_held(side, &is_alive) {
                self.acknowledge(side, generation);
            }
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
        ends.end(Side::Acceptor, End::Reset);
        ends.end(Side::Acceptor, End::Closed);
        assert_eq!(ends.ended(Side::Acceptor), End::Reset);
        assert_eq!(ends.ended(Side::Connector), End::Open);
        ends.begin(1);
        assert_eq!(ends.ended(Side::Acceptor), End::Open);
    }

    #[test]
    fn a_side_is_held_while_one_of_its_processes_lives() {
        let ends = Ends::default();
        ends.hold(Side::Connector, 5);
        ends.hold(Side::Connector, 6);
        let is_held = |alive: &[u32]| ends.is_held(Side::Connector, |one| alive.contains(&one));
        assert!(is_held(&[6]) && !is_held(&[7]) && is_held(&[5, 6]));
        ends.release(Side::Connector, 6);
        assert!(!is_held(&[6]) && is_held(&[5]));
        (0..HOLDERS as u32).for_each(|process| ends.hold(Side::Connector, 100 + process));
        assert!(is_held(&[]), "not all are known");
    }

    #[test]
    fn the_sides_of_killed_processes_are_acknowledged() {
        let ends = Ends::default();
        ends.begin(1);
        ends.hold(Side::Connector, 5);
        ends.acknowledge(Side::Connector, 1);
        ends.reclaim(1, |_| false);
        assert!(!ends.is_free(1), "no process has accepted it");
        ends.hold(Side::Acceptor, 6);
        ends.reclaim(1, |process| process == 6);
        assert!(!ends.is_free(1));
        ends.reclaim(1, |_| false);
        assert!(ends.is_free(1));
    }

    #[test]
    fn a_connection_is_accepted_once() {
        let ends = Ends::default();
        assert!(!ends.accept(0), "a segment that was never used");
        for generation in [1, 2] {
            ends.begin(generation);
            assert!(ends.accept(generation) && !ends.accept(generation));
        }
        ends.begin(3);
        ends.acknowledge(Side::Connector, 3);
        ends.acknowledge(Side::Acceptor, 3);
        assert!(!ends.accept(3), "it has ended");
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
