//! Who may write how much into the output, and who comes next: interactive streams before bulk ones,
//! and these in turn.

use std::collections::VecDeque;

use crate::Class;
use crate::stream::{Stream, Wait};

/// So many bytes pending make one efficient write to the transport.
const BUDGET: usize = 256 << 10;
/// Interactive streams may write so much more, so that bulk never shuts them out.
const RESERVE: usize = 64 << 10;
/// What bulk may have pending while an interactive stream is open: one record, because it stands before
/// whatever the interactive stream writes next.
const BESIDE_INTERACTIVE: usize = 16 << 10;
/// The least that a turn is worth.
const SLICE: usize = 16 << 10;

/// The order of those who write.
pub(crate) struct Turns {
    /// Counts transmissions, from 1.
    round: u64,
    /// How many bulk streams have wanted to write in this round, and did in the last one.
    active: usize,
    contenders: usize,
    /// How many interactive streams are open.
    interactive: usize,
    /// Bytes were taken that the transport has not accepted in full.
    unwritten: bool,
    waiting_interactive: VecDeque<u64>,
    /// Bulk streams that found no room in this round, and those that had their turn.
    starved: VecDeque<u64>,
    waiting_bulk: VecDeque<u64>,
}

impl Turns {
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

    /// How many bytes the stream may write now; it may exceed the budget by less than a slice.
    pub(crate) fn quota(&mut self, stream: &mut Stream, pending: usize) -> usize {
        if stream.turn.0 != self.round {
            stream.turn = (self.round, 0);
            self.active += usize::from(stream.class == Class::Bulk);
        }
        let budget = match stream.class {
            Class::Interactive => BUDGET + RESERVE,
            Class::Bulk if self.bulk_waits() => return 0,
            Class::Bulk if self.interactive > 0 => BESIDE_INTERACTIVE,
            Class::Bulk => BUDGET,
        };
        if pending >= budget {
            return 0;
        }
        let left = (budget - pending).max(SLICE);
        if stream.class == Class::Interactive || self.contenders < 2 {
            return left;
        }
        let share = (budget / self.contenders).max(SLICE);
        left.min(share.saturating_sub(stream.turn.1))
    }

    /// The stream was refused and waits for its turn.
    pub(crate) fn queue(&mut self, id: u64, stream: &mut Stream) {
        if stream.wait == Wait::Turn {
            return;
        }
        stream.wait = Wait::Turn;
        match stream.class {
            Class::Interactive => self.waiting_interactive.push_back(id),
            Class::Bulk if stream.turn == (self.round, 0) => self.starved.push_back(id),
            Class::Bulk => self.waiting_bulk.push_back(id),
        }
    }

    /// All who wait and may write now, in order.
    pub(crate) fn wake(&mut self) -> impl Iterator<Item = u64> {
        let waiting = std::mem::take(&mut self.waiting_interactive);
        let bulk = if self.bulk_waits() {
            [VecDeque::new(), VecDeque::new()]
        } else {
            [&mut self.starved, &mut self.waiting_bulk].map(std::mem::take)
        };
        waiting.into_iter().chain(bulk.into_iter().flatten())
    }

    /// Beside an interactive stream, bulk is not chosen before the transport has taken what went before.
    fn bulk_waits(&self) -> bool {
        self.unwritten && self.interactive > 0
    }

    /// The transport has taken all bytes; whether somebody may have waited for that.
    pub(crate) fn written(&mut self) -> bool {
        std::mem::take(&mut self.unwritten)
    }

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
