//! Where the parts of a segment are.
//!
//! | offset | length | content |
//! |---|---|---|
//! | 0 | 4 KiB | magic, version; at 1 KiB and 2 KiB the [`Control`](crate::Control) of each direction |
//! | 3 KiB | 1 KiB | the [`Ends`](crate::ends::Ends) of a segment in a pool |
//! | 4 KiB | 64 KiB | small region of the first direction |
//! | 68 KiB | 64 KiB | small region of the second |
//! | 132 KiB | 1 MiB | large region of the first |
//! | 1156 KiB | 1 MiB | large region of the second |
//!
//! The file is sparse: pages of a large region are allocated when its ring grows.

/// Bytes that a ring holds at first.
pub const SMALL: u64 = 64 << 10;
/// Bytes that a grown ring holds.
pub const LARGE: u64 = 1 << 20;
/// The bytes of a long message that are shown to the reader before the rest is copied.
#[cfg(not(loom))]
pub const PIECE: usize = 64 << 10;
/// Rings are short there.
#[cfg(loom)]
pub const PIECE: usize = 1;
/// The length of a segment's file, in bytes.
pub const SEGMENT_LENGTH: u64 = HEADER + 2 * SMALL + 2 * LARGE;

/// What each of the two ends counts as its part of a new segment, in bytes.
#[cfg(not(loom))]
pub const HALF: u64 = HEADER / 2 + SMALL;

pub(crate) const HEADER: u64 = 4 << 10;

/// Positions of a stream stay below: far more than any connection carries, and sums do not
/// overflow.
pub(crate) const MAX_POSITION: u64 = 1 << 62;
/// Bytes that can be written and not read: those of both regions.
pub(crate) const MAX_UNREAD: u64 = Region::Small.capacity() + Region::Large.capacity();

/// The region of a ring that bytes go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Region {
    Small,
    Large,
}

impl Region {
    /// A ring alternates between its regions, and begins with the small one.
    pub(crate) const fn after(switches: u32) -> Self {
        if switches.is_multiple_of(2) { Self::Small } else { Self::Large }
    }

    /// A power of two.
    #[cfg(not(loom))]
    pub(crate) const fn capacity(self) -> u64 {
        match self {
            Self::Small => SMALL,
            Self::Large => LARGE,
        }
    }

    /// Loom explores every interleaving, so that its rings are short.
    #[cfg(loom)]
    pub(crate) const fn capacity(self) -> u64 {
        match self {
            Self::Small => 2,
            Self::Large => 4,
        }
    }

    /// The offset of this region in the file, for one of the two directions.
    #[cfg(not(loom))]
    pub(crate) fn offset(self, direction: usize) -> u64 {
        let direction = direction as u64;
        match self {
            Self::Small => HEADER + direction * SMALL,
            Self::Large => HEADER + 2 * SMALL + direction * LARGE,
        }
    }
}
