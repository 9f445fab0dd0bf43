//! The end of a ring that writes.

use crate::atomic::Ordering;
use crate::ends::first_position;
use crate::layout::{MAX_POSITION, MAX_UNREAD, PIECE, Region};
use crate::memory::{Corrupt, Memory, RegionOf, pieces};
use crate::processor;
use crate::sleep::{self, Waiter};

/// Writes into a ring. There is one producer for each ring.
pub struct Producer<M> {
    pub(crate) memory: M,
    /// Bytes written, and those of them that the consumer has been shown.
    head: u64,
    published: u64,
    /// Bytes that the consumer had read when its cursor was last looked at.
    tail: u64,
    switches: u32,
    /// The position from which on bytes are in the present region.
    since: u64,
}

/// The state of a [`Producer`] between calls. It may be kept where other processes can change it:
/// [`Producer::restore`] checks it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProducerState {
    /// Bytes written.
    pub head: u64,
    /// Bytes that the consumer was shown.
    pub published: u64,
    /// Bytes that the consumer had read when its cursor was last read.
    pub tail: u64,
    /// The position from which on bytes are in the present region.
    pub since: u64,
    /// The number of changes of region.
    pub switches: u32,
}

impl ProducerState {
    /// The state of a ring of this generation, see [`ends`](crate::ends), that nothing was written
    /// to.
    pub fn of_generation(generation: u64) -> Self {
        let first = first_position(generation);
        Self { head: first, published: first, tail: first, since: first, switches: 0 }
    }

    /// Each operation that depends on positions fails with it, and writes nothing.
    const fn corrupt(switches: u32) -> Self {
        let since = u64::MAX - Region::after(switches).capacity();
        Self { head: u64::MAX, published: u64::MAX, tail: u64::MAX, since, switches }
    }

    #[inline(always)]
    fn is_possible(&self) -> bool {
        let Self { head, published, tail, since, switches } = *self;
        let is_ordered = tail <= published && published <= head && since <= head;
        is_ordered
            && head <= MAX_POSITION
            && head - tail <= MAX_UNREAD
            && head - tail.max(since) <= Region::after(switches).capacity()
    }
}

impl<M: Memory> Producer<M> {
    /// The producer of a ring that nothing was written to.
    pub fn new(memory: M) -> Self {
        Self::restore(memory, ProducerState::default())
    }

    /// A producer that goes on where [`state`](Self::state) was taken. If no producer can be in
    /// this state, each operation that depends on positions fails with [`Corrupt`].
    #[inline(always)]
    pub fn restore(memory: M, state: ProducerState) -> Self {
        let state = match state.is_possible() {
            true => state,
            false => ProducerState::corrupt(state.switches),
        };
        let ProducerState { head, published, tail, since, switches } = state;
        Self { memory, head, published, tail, switches, since }
    }

    /// The state for [`restore`](Self::restore).
    #[inline(always)]
    pub fn state(&self) -> ProducerState {
        let Self { head, published, tail, since, switches, .. } = *self;
        ProducerState { head, published, tail, since, switches }
    }

    /// Copies as much of `bytes` as there is room for, and returns how many bytes that were. The
    /// consumer sees them after [`publish`](Self::publish), but the first bytes of a long message
    /// before, in [pieces](PIECE): it copies one while this end copies the next.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer's cursor is where it cannot be.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        let mut done = self.push_short(&bytes[..bytes.len().min(PIECE)])?;
        while done < bytes.len() && done.is_multiple_of(PIECE) && self.fits(1)? {
            self.show();
            sleep::wake_by_futex(&self.memory.control().consumer_sleep);
            let end = (done + PIECE).min(bytes.len());
            done += self.push_short(&bytes[done..end])?;
        }
        Ok(done)
    }

    /// As [`push`](Self::push), but the consumer sees nothing before [`publish`](Self::publish).
    /// Always inlined: the state stays in registers.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub fn push_short(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        self.fits(bytes.len())?;
        let length = usize::try_from(self.known_room()).unwrap_or(usize::MAX).min(bytes.len());
        let region = self.region();
        pieces(region, self.head, length, |offset, range| {
            self.memory.write(RegionOf(region), offset, &bytes[range]);
        });
        self.head += length as u64;
        Ok(length)
    }

    #[inline(always)]
    fn show(&mut self) {
        self.published = self.head;
        let produced = &self.memory.control().produced;
        processor::show(&produced.processor);
        produced.head.store(self.head, Ordering::Release);
    }

    /// Shows the consumer all bytes that were pushed. If it sleeps by futex, it is woken; if by a
    /// bell, the caller must ring the returned one.
    #[must_use = "the bell must be rung"]
    #[inline(always)]
    pub fn publish(&mut self) -> Option<Waiter> {
        if self.published == self.head {
            return None;
        }
        self.show();
        sleep::take_waiter(&self.memory.control().consumer_sleep)
    }

    /// The bytes for which there is room.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn room(&mut self) -> Result<u64, Corrupt> {
        self.look()?;
        Ok(self.known_room())
    }

    /// Whether there is room for so many bytes.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline(always)]
    pub fn fits(&mut self, length: usize) -> Result<bool, Corrupt> {
        if self.known_room() < length as u64 {
            self.look()?;
        }
        Ok(self.known_room() >= length as u64)
    }

    /// Whether the consumer has read everything that was pushed.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn is_empty(&mut self) -> Result<bool, Corrupt> {
        self.look()?;
        Ok(self.tail == self.head)
    }

    /// Moves on to the other region: a ring of 64 KiB grows to 1 MiB, a grown one shrinks. Bytes
    /// that are in the ring stay where they are. `false`, and no change, while the consumer has not
    /// followed the last move, or the region already is the one that is wanted.
    ///
    /// The pages of the large region must be allocated before.
    pub fn resize(&mut self, large: bool) -> bool {
        let control = self.memory.control();
        let wanted = if large { Region::Large } else { Region::Small };
        if self.region() == wanted
            || control.consumed.entered.load(Ordering::Acquire) != self.switches
        {
            return false;
        }
        self.switches = self.switches.wrapping_add(1);
        self.since = self.head;
        control.produced.switch_at.store(self.head, Ordering::Relaxed);
        // The consumer that sees this number also sees the position.
        control.produced.switches.store(self.switches, Ordering::Release);
        true
    }

    /// The memory of this direction.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether the ring has 1 MiB.
    pub fn is_large(&self) -> bool {
        self.region() == Region::Large
    }

    /// Says that no more bytes follow. As [`publish`](Self::publish), which it includes, it may
    /// return a bell to ring.
    #[must_use = "the bell must be rung"]
    pub fn finish(&mut self) -> Option<Waiter> {
        self.published = self.head;
        let control = self.memory.control();
        control.produced.head.store(self.head, Ordering::Release);
        // After the head: a consumer that sees the end sees every byte before it.
        control.handover.finished.store(1, Ordering::Release);
        sleep::take_waiter(&control.consumer_sleep)
    }

    /// Whether the consumer reads no more.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.memory.control().handover.abandoned.load(Ordering::Acquire) != 0
    }

    /// Says that this end sleeps, whatever the ring has. The caller looks at the ring after it, as
    /// [`prepare_sleep`](Self::prepare_sleep) does.
    pub fn announce_sleep(&self, waiter: Waiter) {
        sleep::announce(&self.memory.control().producer_sleep, waiter);
    }

    /// Says that this end sleeps until there is room. `true` if there is none yet and the caller
    /// should sleep now; it calls [`awake`](Self::awake) after that. `false` if there is room, or
    /// the consumer has gone.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn prepare_sleep(&mut self, waiter: Waiter) -> Result<bool, Corrupt> {
        self.announce_sleep(waiter);
        let asleep = self.look().map(|()| self.known_room() == 0 && !self.is_abandoned());
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
        crate::Sleeper { memory: self.memory.clone(), producer: true }
    }

    /// Says that this end no longer sleeps by `waiter`. When the other end has woken it, in
    /// nanoseconds of [`now`](crate::now); `None` if it has not, or another thread of this end has
    /// announced its sleep since.
    pub fn awake(&self, waiter: Waiter) -> Option<u64> {
        sleep::withdraw(&self.memory.control().producer_sleep, waiter)
    }

    /// Wakes the thread of this end that sleeps by futex, if there is one: another thread has taken
    /// its wake-up.
    #[cfg(not(loom))]
    pub fn wake_own(&self) {
        sleep::wake_own(&self.memory.control().producer_sleep);
    }

    #[inline(always)]
    fn region(&self) -> Region {
        Region::after(self.switches)
    }

    /// Bytes from `at + skip` on that were written and are still in the present region, or in the
    /// one before.
    pub(crate) fn copy_back(
        &mut self,
        at: u64,
        skip: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Corrupt> {
        if at < self.tail || at > self.head {
            return Err(Corrupt("the reader left outside of what was written"));
        }
        let from = at.saturating_add(skip).min(self.head);
        let (region, end) = if from < self.since {
            (Region::after(self.switches.wrapping_sub(1)), self.since)
        } else {
            (self.region(), self.head)
        };
        if end - from > region.capacity() {
            return Err(Corrupt("more bytes are unread than the ring holds"));
        }
        let length = usize::try_from(end - from).unwrap_or(usize::MAX).min(buffer.len());
        pieces(region, from, length, |offset, range| {
            self.memory.read(RegionOf(region), offset, &mut buffer[range]);
        });
        Ok(length)
    }

    /// Room by what is known of the consumer. Bytes before the change of region do not count: they
    /// are in the other one.
    #[inline(always)]
    fn known_room(&self) -> u64 {
        self.region().capacity() - (self.head - self.tail.max(self.since))
    }

    /// Reads the consumer's cursor. It only moves forward, and never past what was published.
    #[inline(always)]
    fn look(&mut self) -> Result<(), Corrupt> {
        let tail = self.memory.control().consumed.tail.load(Ordering::Acquire);
        if tail < self.tail || tail > self.published {
            return Err(Corrupt("the reader's cursor is outside of what was written"));
        }
        self.tail = tail;
        Ok(())
    }
}
