//! The scheduler of writers: how much each stream may write into the output, and in which order
//! refused writers are woken. Interactive streams go before bulk streams, and bulk streams share
//! each round equally.

use std::collections::VecDeque;

use crate::Class;
use crate::stream::{Stream, Usage, Wait};

/// The most bytes pending in the output: enough for one efficient write to the transport, and so
/// little that the peer's processor decrypts them while this one seals the next. Loopback has
/// segments of at most 65,483 bytes: slightly less than two of them leave no short third one, which
/// costs a wake-up of its own (writes of 256 KiB: a third less per second of processor time).
const BUDGET: usize = 120 << 10;
/// Bytes beyond the budget that interactive streams may write, so that bulk data never blocks them.
const INTERACTIVE_RESERVE: usize = 64 << 10;
/// The budget of bulk streams, in bytes, while an interactive stream is open: one record, because
/// it is sent before what the interactive stream writes next.
const BULK_WITH_INTERACTIVE: usize = 16 << 10;
/// The smallest quantum, in bytes.
const MIN_QUANTUM: usize = 16 << 10;

/// The order and the shares of writers.
pub(crate) struct Scheduler {
    /// Counts transmissions, from 1.
    round: u64,
    /// How many bulk streams have tried to write in this round.
    active: usize,
    /// How many did in the last round that had any; the budget is divided by it.
    contenders: usize,
    /// How many interactive streams are open.
    interactive: usize,
    /// The transport has not yet accepted all bytes that were taken.
    unwritten: bool,
    waiting_interactive: VecDeque<u64>,
    /// Bulk streams that wrote nothing in this round; they are woken first.
    starved: VecDeque<u64>,
    /// Bulk streams that used their quantum.
    waiting_bulk: VecDeque<u64>,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        Self {
            round: 1,
            active: 0,
            contenders: 0,
            interactive: 0,
            unwritten: false,
            waiting_interactive: VecDeque::new(),
            starved: VecDeque::new(),
            waiting_bulk: VecDeque::new(),
        }
    }

    /// How many bytes the stream may write now. They may exceed the budget by less than
    /// [`MIN_QUANTUM`].
    pub(crate) fn quantum(&mut self, stream: &mut Stream, pending: usize) -> usize {
        if stream.sender.usage.round != self.round {
            stream.sender.usage = Usage { round: self.round, written: 0 };
            self.active += usize::from(stream.class == Class::Bulk);
        }
        let budget = match stream.class {
            Class::Interactive => BUDGET + INTERACTIVE_RESERVE,
            Class::Bulk if self.bulk_is_held() => return 0,
            Class::Bulk if self.interactive > 0 => BULK_WITH_INTERACTIVE,
            Class::Bulk => BUDGET,
        };
        if pending >= budget {
            return 0;
        }
        let left = (budget - pending).max(MIN_QUANTUM);
        if stream.class == Class::Interactive || self.contenders < 2 {
            return left;
        }
        let share = (budget / self.contenders).max(MIN_QUANTUM);
        left.min(share.saturating_sub(stream.sender.usage.written))
    }

    /// Queues a refused stream for its next quantum.
    pub(crate) fn queue(&mut self, id: u64, stream: &mut Stream) {
        if stream.sender.wait == Wait::Quantum {
            return;
        }
        stream.sender.wait = Wait::Quantum;
        match stream.class {
            Class::Interactive => self.waiting_interactive.push_back(id),
            Class::Bulk if stream.sender.usage == Usage { round: self.round, written: 0 } => {
                self.starved.push_back(id)
            }
            Class::Bulk => self.waiting_bulk.push_back(id),
        }
    }

    /// Takes the waiting streams that may write now, in order.
    pub(crate) fn wake(&mut self) -> impl Iterator<Item = u64> {
        let waiting = std::mem::take(&mut self.waiting_interactive);
        let bulk = if self.bulk_is_held() {
            [VecDeque::new(), VecDeque::new()]
        } else {
            [&mut self.starved, &mut self.waiting_bulk].map(std::mem::take)
        };
        waiting.into_iter().chain(bulk.into_iter().flatten())
    }

    /// Whether bulk streams must wait: an interactive stream is open, and the transport has not
    /// accepted the last bytes.
    fn bulk_is_held(&self) -> bool {
        self.unwritten && self.interactive > 0
    }

    /// The transport has accepted all bytes; returns whether a stream may have waited for that.
    pub(crate) fn written(&mut self) -> bool {
        std::mem::take(&mut self.unwritten)
    }

    /// The output was taken: quanta start anew.
    pub(crate) fn next_round(&mut self) {
        self.round += 1;
        self.unwritten = true;
        if self.active > 0 {
            self.contenders = std::mem::take(&mut self.active);
        }
    }

    pub(crate) fn opened(&mut self, class: Class) {
        self.interactive += usize::from(class == Class::Interactive);
    }

    pub(crate) fn ended(&mut self, class: Class) {
        self.interactive -= usize::from(class == Class::Interactive);
    }
}
