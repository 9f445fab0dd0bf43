//! The words that both ends of a ring share.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The shared words of one direction. Each group is on a cache line of its own, so that an end that
/// only polls does not take a line from the end that writes it.
#[repr(C)]
#[derive(Default)]
pub struct Control {
    pub(crate) produced: Produced,
    pub(crate) consumed: Consumed,
    pub(crate) consumer_sleep: SleepWord,
    pub(crate) producer_sleep: SleepWord,
    pub(crate) handover: Handover,
}

impl Control {
    /// The bytes written, by the word of the producer.
    pub(crate) fn position(&self) -> u64 {
        self.produced.head.load(Ordering::Relaxed)
    }

    /// Returns true if the ring may have grown.
    pub(crate) fn has_grown(&self) -> bool {
        self.produced.switches.load(Ordering::Relaxed) != 0
    }

    /// Makes the ring one that nothing was written to, with this first position.
    pub(crate) fn reset(&self, position: u64) {
        let Self { produced, consumed, consumer_sleep, producer_sleep, handover } = self;
        for word in [&produced.head, &consumed.tail] {
            word.store(position, Ordering::Relaxed);
        }
        for word in [&produced.switch_at, &handover.start_at, &handover.left_at] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &produced.switches,
            &produced.processor,
            &consumed.entered,
            &consumed.processor,
            &consumer_sleep.waiter,
            &producer_sleep.waiter,
            &handover.ready,
            &handover.start,
            &handover.end,
            &handover.finished,
            &handover.abandoned,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// The producer has ended the ring: the consumer reads it to its end.
pub(crate) const FINISHED: u32 = 1;
/// The consumer has left the ring: the producer sends again what was not read.
pub(crate) const LEFT: u32 = 2;

/// How a stream of bytes comes from TCP into the ring, and how it leaves it. See
/// [`handover`](crate::handover). Both ends look at these words in each call, so they are apart
/// from those that change in each call.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Handover {
    /// By the consumer: bytes may come by the ring.
    pub(crate) ready: AtomicU32,
    /// By the producer: a [`Start`](crate::Start), as a number.
    pub(crate) start: AtomicU32,
    /// By the producer, before `start`: bytes of the stream that come by TCP.
    pub(crate) start_at: AtomicU64,
    /// By the end that is first: how the ring ends, [`FINISHED`] or [`LEFT`].
    pub(crate) end: AtomicU32,
    /// By the consumer, before `end`: it reads nothing more from the ring, from here on.
    pub(crate) left_at: AtomicU64,
    /// By the producer: 1 once no more bytes will follow.
    pub(crate) finished: AtomicU32,
    /// By the consumer: 1 once no more bytes will be read.
    pub(crate) abandoned: AtomicU32,
}

/// Written by the producer.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Produced {
    /// Bytes written since the start.
    pub(crate) head: AtomicU64,
    /// The position from which on bytes are in the other region.
    pub(crate) switch_at: AtomicU64,
    /// How often the region has changed. Written after `switch_at`, and only if the consumer has
    /// followed the last change.
    pub(crate) switches: AtomicU32,
    /// The [`processor`](crate::processor()) of the thread that wrote last.
    pub(crate) processor: AtomicU32,
}

/// Written by the consumer.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct Consumed {
    /// Bytes read since the start.
    pub(crate) tail: AtomicU64,
    /// The changes of region that the consumer has followed.
    pub(crate) entered: AtomicU32,
    /// The [`processor`](crate::processor()) of the thread that read last.
    pub(crate) processor: AtomicU32,
}

/// How an end sleeps.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct SleepWord {
    /// 0 while it does not, else a [`Waiter`](crate::Waiter). Written by the end that sleeps, and
    /// set to 0 by the one that wakes it.
    pub(crate) waiter: AtomicU32,
    /// By the end that wakes: when, in nanoseconds.
    pub(crate) woken_at: AtomicU64,
}
