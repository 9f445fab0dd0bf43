//! What a ring needs of its memory.

use crate::Control;
use crate::layout::Region;

/// The peer has written what no correct peer writes into the shared memory: the connection must
/// end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shared memory of the connection is corrupt: {0}")]
pub struct Corrupt(pub(crate) &'static str);

/// The memory of one direction: [`Half`](crate::Half) in a segment, and a simulated one in the
/// tests by loom.
pub trait Memory {
    /// The words that both ends share.
    fn control(&self) -> &Control;

    /// Copies `bytes` into a region, at `offset`; `offset + bytes.len()` is at most its capacity.
    #[doc(hidden)]
    fn write(&self, region: RegionOf, offset: u64, bytes: &[u8]);

    /// Copies bytes out of a region, from `offset`; `offset + bytes.len()` is at most its capacity.
    #[doc(hidden)]
    fn read(&self, region: RegionOf, offset: u64, bytes: &mut [u8]);
}

/// A region, named opaquely: only rings choose it.
#[derive(Clone, Copy)]
pub struct RegionOf(pub(crate) Region);

/// Copies to or from the ring positions `at..at + length`, in at most two pieces: a ring wraps at
/// its capacity. `piece` receives the offset in the region, and the range of the caller's bytes.
#[inline(always)]
pub(crate) fn pieces(
    region: Region,
    at: u64,
    length: usize,
    mut piece: impl FnMut(u64, std::ops::Range<usize>),
) {
    let capacity = region.capacity();
    let offset = at & (capacity - 1);
    let first = usize::try_from(capacity - offset).unwrap_or(usize::MAX).min(length);
    piece(offset, 0..first);
    if first < length {
        piece(0, first..length);
    }
}
