//! How many chunks are offered or sent at a time: so many that the uplink does not wait for
//! answers, and no more, since chunks that share the uplink all arrive late.

use std::time::Duration;

use super::sending::{Offered, Sending, State};
use crate::Geometry;

/// Up to so many chunks, the time of a single one matters: all are compared, news are told faster,
/// and fewer wait for the uplink.
pub(super) const FEW: u32 = 64;
/// The minimum number of slots for a content of at most [`FEW`] chunks.
const MIN_FEW: usize = 2;
/// The minimum number of slots for any other content.
const MIN_MANY: usize = 4;
/// The most bytes that are offered or sent at a time; at least [`MIN_MANY`] chunks are.
const MOST_BYTES: u32 = 4 << 20;
/// The most chunks.
pub(super) const MOST: usize = 256;
/// This number of chunks or answers that leave the uplink idle raises the number of slots: answers
/// take longer than the chunks that leave until then.
const IDLE: usize = 2;
/// So many times the number of slots, in sequence and each with [`MIN_MANY`] others behind it,
/// lower it.
const BUSY: usize = 2;
/// An uplink is slow if a chunk takes longer to leave.
const SLOW: Duration = Duration::from_millis(15);
/// Over a slow one, chunks leave together only if it carries them in this time.
const SPAN: Duration = Duration::from_millis(200);
/// The least number of chunks that leave together.
const LEAST_LEAVING: u128 = 2;
/// The most chunks in the average of the time that one takes to leave.
const MEASURED: u32 = 32;
/// If none leaves in the time that this number of chunks takes, one of them waits for its receiver
/// and not for the uplink.
const STALL: u32 = 8;
/// The lower bound of that time.
const MIN_STALL: Duration = Duration::from_millis(200);
/// The upper bound of that time.
const MAX_STALL: Duration = Duration::from_secs(2);

pub(super) struct Slots {
    least: usize,
    most: usize,
    /// Between the two.
    allowed: usize,
    used: usize,
    /// Those of the used ones whose chunks were accepted.
    leaving: usize,
    /// How many chunks and answers left the uplink idle since the number has changed.
    idle: usize,
    /// How many left in sequence while enough others were leaving.
    busy: usize,
    /// The number of chunks that have left.
    left: u64,
    /// When the last chunk left, or the first began to.
    moved: Duration,
    /// The time that a chunk takes to leave while others wait behind it, as a moving average.
    per_chunk: Duration,
    /// The number of chunks in that average, up to [`MEASURED`].
    measured: u32,
}

impl Slots {
    pub(super) fn new(geometry: Geometry) -> Self {
        let least = if geometry.chunks() <= FEW { MIN_FEW } else { MIN_MANY };
        let most = (MOST_BYTES / geometry.chunk_size().bytes()) as usize;
        Self {
            least,
            most: most.clamp(least, MOST),
            allowed: least,
            used: 0,
            leaving: 0,
            idle: 0,
            busy: 0,
            left: 0,
            moved: Duration::ZERO,
            per_chunk: Duration::ZERO,
            measured: 0,
        }
    }

    /// Nothing is offered from now on.
    pub(super) fn close(&mut self) {
        (self.least, self.most, self.allowed) = (0, 0, 0);
    }

    pub(super) fn is_free(&self) -> bool {
        self.used < self.allowed
    }

    pub(super) fn allowed(&self) -> usize {
        self.allowed
    }

    /// The time that a chunk takes to leave.
    pub(super) fn per_chunk(&self) -> Duration {
        self.per_chunk
    }

    /// A chunk is offered.
    pub(super) fn take(&mut self, now: Duration) -> State {
        self.used += 1;
        State::Offered(Offered { at: now, after: self.left, in_slot: true })
    }

    /// An offer was accepted.
    pub(super) fn accept(&mut self, offered: Offered) -> State {
        self.used += usize::from(!offered.in_slot);
        State::Accepted
    }

    /// Whether a chunk that was accepted may leave, and need not wait for others to leave first.
    /// What leaves together over a slow uplink all arrives late, and so do answers. Two may always
    /// leave: the downlink of one receiver may be busy.
    pub(super) fn may_leave(&self) -> bool {
        let most = SPAN.as_nanos().checked_div(self.per_chunk.as_nanos()).unwrap_or(u128::MAX);
        self.per_chunk < SLOW || (self.leaving as u128) < most.max(LEAST_LEAVING)
    }

    /// A chunk begins to leave.
    pub(super) fn start(&mut self, now: Duration) -> State {
        if self.leaving == 0 {
            self.moved = now;
        }
        self.leaving += 1;
        State::Leaving { after: self.left }
    }

    /// A chunk or an offer needs no slot any longer.
    pub(super) fn release(&mut self, state: State) {
        match state {
            State::Offered(offered) => self.used -= usize::from(offered.in_slot),
            State::Accepted => self.used -= 1,
            State::Leaving { .. } => {
                self.used -= 1;
                self.leaving -= 1;
            }
            State::Withdrawn(_) | State::Held => {}
        }
    }

    /// A chunk has left. If others are always behind it, fewer are offered from now on.
    /// `others_wait`: some were accepted that do not leave yet.
    pub(super) fn chunk_left(&mut self, others_wait: bool, now: Duration) {
        self.left += 1;
        if self.leaving > 0 || others_wait {
            let took = now.saturating_sub(self.moved);
            self.measured = (self.measured + 1).min(MEASURED);
            self.per_chunk = (self.per_chunk * (self.measured - 1) + took) / self.measured;
        }
        self.moved = now;
        self.busy = if self.leaving >= self.least || others_wait { self.busy + 1 } else { 0 };
        if self.busy >= BUSY * self.allowed {
            (self.idle, self.busy) = (0, 0);
            self.allowed = (self.allowed - 1).max(self.least);
        }
        self.answered(others_wait);
    }

    /// A chunk has left, or an offer was declined. If the uplink has nothing to do now, although no
    /// more could have been offered, more are from now on: the longer the round trip, the more
    /// offers wait for their answers.
    pub(super) fn answered(&mut self, others_wait: bool) {
        let waits = self.leaving == 0 && !others_wait && self.used + 1 >= self.allowed;
        self.idle += usize::from(waits);
        if self.idle >= IDLE {
            (self.idle, self.busy) = (0, 0);
            self.allowed = (self.allowed + 1 + self.allowed / 8).min(self.most);
        }
    }

    /// A chunk that has not left, or an offer without an answer, while so many others have left
    /// waits for its receiver.
    pub(super) fn release_held(&mut self, sending: &mut Sending) {
        let is_late = |after| self.left - after > 2 * self.allowed as u64;
        match &mut sending.state {
            State::Leaving { after } if is_late(*after) => {
                self.release(std::mem::replace(&mut sending.state, State::Held));
            }
            State::Offered(offered) if offered.in_slot && is_late(offered.after) => {
                offered.in_slot = false;
                self.used -= 1;
            }
            _ => {}
        }
    }

    /// When the chunk that began to leave first is taken for one that waits for its receiver.
    pub(super) fn stalls_at(&self) -> Option<Duration> {
        (self.leaving > 0)
            .then(|| self.moved + (self.per_chunk * STALL).clamp(MIN_STALL, MAX_STALL))
    }

    /// One is.
    pub(super) fn stalled(&mut self, now: Duration) {
        self.moved = now;
    }
}
