//! A segment that no value owns.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::atomic::Ordering;
use crate::control::{Control, LEFT};
use crate::ends::{self, Ends};
use crate::mapping::{Half, Mapping, Start};
use crate::segment::Segment;
use crate::sleep::take_waiter;
use crate::{Consumer, ConsumerState, Producer, ProducerState, Side, Waiter};

impl Segment {
    /// Keeps the segment mapped without a reference to it.
    pub fn leak(self) -> Leaked {
        let start = self.mapping.0;
        match Arc::try_unwrap(self.mapping) {
            Ok(mapping) => std::mem::forget(mapping),
            // Ends of it exist, which count their references.
            Err(mapping) => std::mem::forget(mapping),
        }
        Leaked(start)
    }
}

/// A segment that stays mapped until [`unmap`](Self::unmap). Its ends own no memory of the process.
#[derive(Clone, Copy)]
pub struct Leaked(pub(crate) Start);

impl Leaked {
    /// The address of the mapping, for memory of this process only: no other process may change it.
    pub fn into_address(self) -> NonNull<u8> {
        self.0.0
    }

    /// The segment that is mapped at this address.
    ///
    /// # Safety
    /// `address` is from [`into_address`](Self::into_address), and the segment is mapped for as
    /// long as the result and its ends are used.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn from_address(address: NonNull<u8>) -> Self {
        Self(Start(address))
    }

    /// The end that `side` writes to, in this state.
    #[inline]
    pub fn producer(self, side: Side, state: ProducerState) -> Producer<Half> {
        Producer::restore(self.half(side.outbound()), state)
    }

    /// The end that `side` reads from, in this state.
    #[inline]
    pub fn consumer(self, side: Side, state: ConsumerState) -> Consumer<Half> {
        Consumer::restore(self.half(1 - side.outbound()), state)
    }

    #[inline]
    fn half(self, direction: usize) -> Half {
        Half { start: self.0, direction }
    }

    /// Returns true if the reader of what `side` writes has left the ring, see
    /// [`handover`](crate::handover).
    #[inline]
    pub fn is_left(self, side: Side) -> bool {
        self.0.control(side.outbound()).handover.end.load(Ordering::Acquire) == LEFT
    }

    /// Returns true if the writer of what `side` reads has shown more than the position `tail`, or
    /// has finished.
    #[inline]
    pub fn has_more(self, side: Side, tail: u64) -> bool {
        let control = self.0.control(1 - side.outbound());
        control.produced.head.load(Ordering::Acquire) != tail
            || control.handover.finished.load(Ordering::Acquire) != 0
    }

    /// The [`processor`](crate::processor()) that the peer of `side` ran on when it last wrote, and
    /// when it last read. The peer writes them: they may be anything.
    #[inline]
    pub fn peer_processors(self, side: Side) -> [u32; 2] {
        let written = &self.0.control(1 - side.outbound()).produced.processor;
        let read = &self.0.control(side.outbound()).consumed.processor;
        [written, read].map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns true if not all was read that `side` has written.
    pub fn has_unread(self, side: Side) -> bool {
        let control = self.0.control(side.outbound());
        let read = control.consumed.tail.load(Ordering::Acquire);
        control.produced.head.load(Ordering::Acquire) != read
    }

    /// The ends of the connections in a segment of a pool.
    #[inline]
    pub fn ends(self) -> &'static Ends {
        self.0.ends()
    }

    /// Begins a connection in a segment of a pool that both sides of the one before have left. The
    /// number of its generation.
    pub fn begin(self) -> u64 {
        let controls = [self.0.control(0), self.0.control(1)];
        let ends = self.ends();
        let generation = ends::next(ends.generation(), controls.map(Control::position));
        for (direction, control) in controls.into_iter().enumerate() {
            if control.has_grown() {
                // Without it, the memory is not given back.
                let _ = self.half(direction).free_large();
            }
            control.reset(ends::first_position(generation));
        }
        ends.begin(generation);
        generation
    }

    /// Shows the end that a side has left behind that was killed: its peer reads what is in the
    /// ring, and then the end of the stream.
    pub fn bury(self, side: Side) {
        self.0.control(side.outbound()).handover.finished.store(1, Ordering::Release);
        self.0.control(1 - side.outbound()).handover.abandoned.store(1, Ordering::Release);
    }

    /// Ends both directions for a side that has read nothing. Returns how the other side is to be
    /// woken.
    pub fn end_all(self, side: Side) -> [Option<Waiter>; 2] {
        self.bury(side);
        let outbound = &self.0.control(side.outbound()).consumer_sleep;
        let inbound = &self.0.control(1 - side.outbound()).producer_sleep;
        [outbound, inbound].map(take_waiter)
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
