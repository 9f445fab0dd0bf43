//! Stream numbers: the client's are odd from 1, the server's even from 2, each without a gap.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// One stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(super) u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The state of a stream number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdState {
    /// The next number that the peer may open.
    NextOfPeer,
    /// A stream was opened with it.
    Used,
    /// No stream was opened with it.
    Unused,
}

/// The numbers in use.
pub(crate) struct Ids {
    own: u64,
    peer: u64,
}

impl Ids {
    pub(crate) fn new(client: bool) -> Self {
        if client { Self { own: 1, peer: 2 } } else { Self { own: 2, peer: 1 } }
    }

    /// Takes the next number of this side.
    pub(crate) fn next_own(&mut self) -> u64 {
        self.own += 2;
        self.own - 2
    }

    /// The peer used its next number.
    pub(crate) fn peer_opened(&mut self) {
        self.peer += 2;
    }

    pub(crate) fn state(&self, id: u64) -> IdState {
        let next = if id % 2 == self.own % 2 { self.own } else { self.peer };
        match id {
            id if id == self.peer => IdState::NextOfPeer,
            id if id > 0 && id < next => IdState::Used,
            _ => IdState::Unused,
        }
    }
}

/// Hashes stream numbers. They have no gaps, so a peer cannot choose numbers that collide.
pub(crate) type BuildHasher = BuildHasherDefault<IdHasher>;

/// See [`BuildHasher`].
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio in 64 bits spreads adjacent numbers over all bits (Knuth, volume 3,
        // 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_two_sides_are_separate() {
        let mut server = Ids::new(false);
        assert_eq!((server.next_own(), server.next_own()), (2, 4));
        assert_eq!(server.state(1), IdState::NextOfPeer);
        server.peer_opened();
        let states = [0, 1, 2, 3, 4, 5, 6].map(|id| server.state(id));
        use IdState::*;
        assert_eq!(states, [Unused, Used, Used, NextOfPeer, Used, Unused, Unused]);
    }
}
