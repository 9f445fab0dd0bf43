//! The end of a ring that reads.

use crate::atomic::Ordering;
use crate::ends::first_position;
use crate::layout::{MAX_POSITION, MAX_UNREAD, Region};
use crate::memory::{Corrupt, Memory, RegionOf, pieces};
use crate::processor;
use crate::sleep::{self, Waiter};

/// Reads from a ring. There is one consumer for each ring.
pub struct Consumer<M> {
    pub(crate) memory: M,
    /// Bytes read.
    tail: u64,
    /// Bytes written when the producer's cursor was last looked at.
    head: u64,
    /// The changes of region that were followed.
    entered: u32,
    /// See [`ConsumerState::end`].
    pub(crate) end: u64,
}

/// The state of a [`Consumer`] between calls. It may be kept where other processes can change it:
/// [`Consumer::restore`] checks it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ConsumerState {
    /// Bytes read.
    pub tail: u64,
    /// Bytes written when the producer's cursor was last read.
    pub head: u64,
    /// The changes of region that were followed.
    pub entered: u32,
    /// The position up to which this end reads, if it has [left with what was
    /// shown](Consumer::leave_with_shown); else 0.
    pub end: u64,
}

impl ConsumerState {
    /// The state of a ring of this generation, see [`ends`](crate::ends), that nothing was read
    /// from.
    pub fn of_generation(generation: u64) -> Self {
        let first = first_position(generation);
        Self { tail: first, head: first, entered: 0, end: 0 }
    }

    /// Each operation that depends on positions fails with it, and reads nothing.
    const CORRUPT: Self = Self { tail: u64::MAX, head: u64::MAX, entered: 0, end: 0 };

    #[inline(always)]
    fn is_possible(&self) -> bool {
        let is_ordered = self.tail <= self.head && self.head <= MAX_POSITION;
        is_ordered
            && (self.end == 0 || self.head <= self.end)
            && self.head - self.tail <= MAX_UNREAD
    }
}

impl<M: Memory> Consumer<M> {
    /// The consumer of a ring that nothing was read from.
    pub fn new(memory: M) -> Self {
        Self::restore(memory, ConsumerState::default())
    }

    /// A consumer that goes on where [`state`](Self::state) was taken. If no consumer can be in
    /// this state, each operation that depends on positions fails with [`Corrupt`].
    #[inline(always)]
    pub fn restore(memory: M, state: ConsumerState) -> Self {
        let state = if state.is_possible() { state } else { ConsumerState::CORRUPT };
        let ConsumerState { tail, head, entered, end } = state;
        Self { memory, tail, head, entered, end }
    }

    /// The state for [`restore`](Self::restore).
    #[inline(always)]
    pub fn state(&self) -> ConsumerState {
        let Self { tail, head, entered, end, .. } = *self;
        ConsumerState { tail, head, entered, end }
    }

    /// Copies bytes into `buffer` and frees their room; returns how many. 0 if there are none, or
    /// `buffer` is empty. If the producer sleeps by a bell, the caller must ring it.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer's cursor is where it cannot be. Bytes may then have been copied,
    /// and are to be ignored.
    #[inline(always)]
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<(usize, Option<Waiter>), Corrupt> {
        let (length, tail, entered) = self.copy(0, buffer)?;
        if length == 0 {
            return Ok((0, None));
        }
        let control = self.memory.control();
        self.tail = tail;
        processor::show(&control.consumed.processor);
        // The producer that sees the room sees a reader that no longer needs the bytes there.
        control.consumed.tail.store(tail, Ordering::Release);
        if entered != self.entered {
            self.entered = entered;
            control.consumed.entered.store(entered, Ordering::Release);
        }
        Ok((length, sleep::take_waiter(&control.producer_sleep)))
    }

    /// As [`read`](Self::read), but the bytes stay in the ring, and the first `skip` are left out.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&mut self, skip: u64, buffer: &mut [u8]) -> Result<usize, Corrupt> {
        Ok(self.copy(skip, buffer)?.0)
    }

    /// The bytes read so far.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// The bytes that the producer had shown when they were last looked for.
    pub fn shown(&self) -> u64 {
        self.head
    }

    /// The bytes that can be read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn readable(&mut self) -> Result<u64, Corrupt> {
        self.look()?;
        Ok(self.head - self.tail)
    }

    /// Whether the producer has said that no more bytes follow. Bytes before the end may still be
    /// in the ring: look for them after this call.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.end != 0 || self.memory.control().handover.finished.load(Ordering::Acquire) != 0
    }

    /// Says that no more bytes will be read. As [`read`](Self::read), it may return a bell to ring.
    #[must_use = "the bell must be rung"]
    pub fn abandon(&self) -> Option<Waiter> {
        let control = self.memory.control();
        control.handover.abandoned.store(1, Ordering::Release);
        sleep::take_waiter(&control.producer_sleep)
    }

    /// Says that this end sleeps, whatever the ring has. The caller looks at the ring after it, as
    /// [`prepare_sleep`](Self::prepare_sleep) does.
    pub fn announce_sleep(&self, waiter: Waiter) {
        sleep::announce(&self.memory.control().consumer_sleep, waiter);
    }

    /// Says that this end sleeps until there are bytes. `true` if there are none yet and the caller
    /// should sleep now; it calls [`awake`](Self::awake) after that. `false` if there are bytes, or
    /// the producer has finished.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn prepare_sleep(&mut self, waiter: Waiter) -> Result<bool, Corrupt> {
        self.announce_sleep(waiter);
        let asleep = self.readable().map(|bytes| bytes == 0 && !self.is_finished());
        if asleep != Ok(true) {
            let _ = self.awake(waiter);
        }
        asleep
    }

    /// What to sleep on after [`prepare_sleep`](Self::prepare_sleep) with [`Waiter::Futex`].
    #[cfg(not(loom))]
    pub fn sleeper(&self) -> crate::Sleeper<M>
    where
        M: Clone,
    {
        crate::Sleeper { memory: self.memory.clone(), producer: false }
    }

    /// Wakes the producer, although nothing was read. As [`read`](Self::read), it may return a bell
    /// to ring.
    #[must_use = "the bell must be rung"]
    pub fn wake_producer(&self) -> Option<Waiter> {
        sleep::take_waiter(&self.memory.control().producer_sleep)
    }

    /// Wakes the thread of this end that sleeps, although nothing was written. As
    /// [`read`](Self::read), it may return a bell: one of this process.
    #[must_use = "the bell must be rung"]
    pub fn wake(&self) -> Option<Waiter> {
        sleep::take_waiter(&self.memory.control().consumer_sleep)
    }

    /// Says that this end no longer sleeps by `waiter`. When the other end has woken it, in
    /// nanoseconds of [`now`](crate::now); `None` if it has not, or another thread of this end has
    /// announced its sleep since.
    pub fn awake(&self, waiter: Waiter) -> Option<u64> {
        sleep::withdraw(&self.memory.control().consumer_sleep, waiter)
    }

    /// Wakes the thread of this end that sleeps by futex, if there is one: another thread has taken
    /// its wake-up.
    #[cfg(not(loom))]
    pub fn wake_own(&self) {
        sleep::wake_own(&self.memory.control().consumer_sleep);
    }

    /// Copies without moving the cursor, from `skip` bytes behind it on: the bytes copied, the
    /// cursor behind them, and the changes of region followed.
    #[inline(always)]
    fn copy(&mut self, skip: u64, buffer: &mut [u8]) -> Result<(usize, u64, u32), Corrupt> {
        if self.head - self.tail < skip.saturating_add(buffer.len() as u64) {
            self.look()?;
        }
        let mut done = 0;
        let mut tail = self.tail;
        let mut entered = self.entered;
        if self.head == self.tail {
            return Ok((done, tail, entered));
        }
        let mut skip = skip.min(self.head - self.tail);
        // At most two rounds: the producer changes the region again only after this end has
        // followed.
        for _ in 0..2 {
            let (end, switches) = self.run(tail, entered)?;
            let skipped = skip.min(end - tail);
            (skip, tail) = (skip - skipped, tail + skipped);
            let length = usize::try_from(end - tail).unwrap_or(usize::MAX).min(buffer.len() - done);
            let region = Region::after(entered);
            pieces(region, tail, length, |offset, range| {
                self.memory.read(RegionOf(region), offset, &mut buffer[done..][range]);
            });
            done += length;
            tail += length as u64;
            if switches == entered || tail < end {
                break;
            }
            entered = switches;
        }
        Ok((done, tail, entered))
    }

    /// How far the region of `entered` reaches from `tail`, and the number of changes after which
    /// bytes are in the next.
    #[inline(always)]
    fn run(&self, tail: u64, entered: u32) -> Result<(u64, u32), Corrupt> {
        let produced = &self.memory.control().produced;
        let switches = produced.switches.load(Ordering::Acquire);
        let (end, next) = if switches == entered {
            (self.head, entered)
        } else if switches == entered.wrapping_add(1) {
            let at = produced.switch_at.load(Ordering::Relaxed);
            if at < tail {
                return Err(Corrupt("the region changed at a position that was already read"));
            }
            // The change may lie behind what this end has seen of the head.
            if at > self.head { (self.head, entered) } else { (at, switches) }
        } else {
            return Err(Corrupt("the region changed more than once"));
        };
        if end - tail > Region::after(entered).capacity() {
            return Err(Corrupt("more bytes were written than the ring holds"));
        }
        Ok((end, next))
    }

    /// Reads the producer's cursor. It only moves forward, and by no more than the regions hold.
    #[inline(always)]
    fn look(&mut self) -> Result<(), Corrupt> {
        let head = self.memory.control().produced.head.load(Ordering::Acquire);
        let head = if self.end == 0 { head } else { head.min(self.end) };
        if head < self.head || head > MAX_POSITION || head - self.tail > MAX_UNREAD {
            return Err(Corrupt("the writer's cursor is outside of the ring"));
        }
        self.head = head;
        Ok(())
    }
}
