//! A segment that no value owns.

use crate::atomic::Ordering;
use crate::control::LEFT;
use crate::mapping::{Half, Mapping, Start};
use crate::segment::{Segment, Side};
use crate::{Consumer, Producer};

impl Segment {
    /// Keeps the segment mapped without a reference to it.
    pub fn leak(self) -> Leaked {
        let start = self.mapping.0;
        std::mem::forget(self);
        Leaked(start)
    }
}

/// A segment that stays mapped until [`unmap`](Self::unmap). Its ends own no memory of the process, so that they can be kept
/// in memory that processes share after a fork: the segment is at the same address in both.
#[derive(Clone, Copy)]
pub struct Leaked(pub(crate) Start);

impl Leaked {
    /// As [`Segment::ends`].
    pub fn ends(self, side: Side) -> (Producer<Half>, Consumer<Half>) {
        side.ends(|direction| Half { start: self.0, direction, _mapping: None })
    }

    /// Whether the reader of what `side` writes has left the ring, see [`handover`](crate::handover).
    #[inline]
    pub fn is_left(self, side: Side) -> bool {
        let direction = usize::from(side == Side::Acceptor);
        self.0.control(direction).handover.end.load(Ordering::Acquire) == LEFT
    }

    /// Removes the mapping from this process.
    ///
    /// # Safety
    /// No end of the segment is used any more in this process.
    #[allow(unsafe_code)]
    pub unsafe fn unmap(self) {
        drop(Mapping(self.0));
    }
}
