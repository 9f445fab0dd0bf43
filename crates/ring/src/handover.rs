//! How a stream moves from TCP to a ring, and back.
//!
//! The ends of a connection exchange bytes over TCP first. When both have the segment, each
//! direction moves by itself:
//!
//! 1. The consumer says that it is [ready](Consumer::set_ready). No thread of it waits in the
//!    kernel for bytes of this connection but the one that says so.
//! 2. The producer sends one more message over TCP, which wakes that thread. Before, it says that
//!    the [start](Producer::begin_start) is pending; after, [at which position](Producer::start_at)
//!    of the stream the ring begins.
//! 3. The consumer reads from TCP up to that position, and then from the ring.
//!
//! Back: the producer [finishes](Producer::finish) the ring and goes on over TCP; the consumer
//! reads the ring to its end, and then TCP. Or the consumer [leaves](Consumer::leave), and the
//! producer sends again over TCP [what was not read](Producer::reclaim). Which of the two it is,
//! the end decides that is first: a producer that has ended its stream cannot send again.

use crate::atomic::{Ordering, fence};
use crate::control::{FINISHED, LEFT};
use crate::memory::{Corrupt, Memory};
use crate::sleep::{self, Waiter};
use crate::{Consumer, Producer};

/// Where the ring begins, as the consumer sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// All bytes come by TCP.
    None,
    /// The producer is writing the last message to TCP.
    Pending,
    /// This many bytes of the stream come by TCP, and all others by the ring.
    At(u64),
}

const PENDING: u32 = 1;
const AT: u32 = 2;

impl<M: Memory> Producer<M> {
    /// Whether the consumer is ready for the ring.
    pub fn is_ready(&self) -> bool {
        self.memory.control().handover.ready.load(Ordering::Acquire) != 0
    }

    /// Says that the start is pending. `false`, and no change, if the consumer is not ready, or no
    /// longer.
    pub fn begin_start(&self) -> bool {
        let handover = &self.memory.control().handover;
        handover.start.store(PENDING, Ordering::Relaxed);
        // A consumer that takes back its readiness looks for the start after it: one of the two
        // sees the other.
        fence(Ordering::SeqCst);
        let ready = self.is_ready();
        if !ready {
            self.cancel_start();
        }
        ready
    }

    /// Takes back [`begin_start`](Self::begin_start).
    pub fn cancel_start(&self) {
        self.memory.control().handover.start.store(0, Ordering::Release);
    }

    /// Says that the ring begins after `sent` bytes of the stream.
    pub fn start_at(&self, sent: u64) {
        let handover = &self.memory.control().handover;
        handover.start_at.store(sent, Ordering::Relaxed);
        handover.start.store(AT, Ordering::Release);
    }

    /// Whether the consumer has left the ring.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.memory.control().handover.end.load(Ordering::Acquire) == LEFT
    }

    /// Decides that the consumer reads the ring to its end; [`finish`](Self::finish) follows.
    /// `false` if the consumer has left before.
    pub fn keep_reader(&self) -> bool {
        let end = &self.memory.control().handover.end;
        let decided = end.compare_exchange(0, FINISHED, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok() || decided == Err(FINISHED)
    }

    /// Copies what the consumer has not read before it left, from the `skip`th byte on; 0 at the
    /// end.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer says that it left where it cannot have been.
    pub fn reclaim(&mut self, skip: u64, buffer: &mut [u8]) -> Result<usize, Corrupt> {
        let at = self.memory.control().handover.left_at.load(Ordering::Acquire);
        self.copy_back(at, skip, buffer)
    }

    /// Wakes the consumer, although nothing was written. As [`publish`](Self::publish).
    #[must_use = "the bell must be rung"]
    pub fn kick(&self) -> Option<Waiter> {
        sleep::take_waiter(&self.memory.control().consumer_sleep)
    }
}

impl<M: Memory> Consumer<M> {
    /// Says whether bytes may come by the ring. `false`, and no change, if readiness cannot be
    /// taken back because the start is pending or known.
    pub fn set_ready(&self, ready: bool) -> bool {
        let handover = &self.memory.control().handover;
        handover.ready.store(ready.into(), Ordering::Release);
        fence(Ordering::SeqCst);
        if !ready && self.start() != Start::None {
            handover.ready.store(1, Ordering::Release);
            return false;
        }
        true
    }

    /// Where the ring begins.
    pub fn start(&self) -> Start {
        let handover = &self.memory.control().handover;
        match handover.start.load(Ordering::Acquire) {
            0 => Start::None,
            AT => Start::At(handover.start_at.load(Ordering::Relaxed)),
            _ => Start::Pending,
        }
    }

    /// Reads nothing more from the ring. What was not read comes by TCP, when the producer has
    /// noticed. `false`, and no change, if the producer has ended the ring before: the consumer
    /// reads it to its end.
    #[must_use = "the ring is to be read to its end"]
    pub fn leave(&self) -> bool {
        let handover = &self.memory.control().handover;
        handover.left_at.store(self.position(), Ordering::Relaxed);
        let decided = handover.end.compare_exchange(0, LEFT, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        decided.is_ok() || decided == Err(LEFT)
    }

    /// As [`leave`](Self::leave), but what the producer has shown so far is still read from the
    /// ring, at whose end [`is_finished`](Self::is_finished) returns true. `false` also if nothing
    /// is unread.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn leave_with_shown(&mut self) -> Result<bool, Corrupt> {
        if self.readable()? == 0 {
            return Ok(false);
        }
        let handover = &self.memory.control().handover;
        handover.left_at.store(self.shown(), Ordering::Relaxed);
        let decided = handover.end.compare_exchange(0, LEFT, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        if decided.is_ok() {
            self.end = self.shown();
        }
        Ok(decided.is_ok())
    }
}
