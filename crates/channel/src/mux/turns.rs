//! Who may write how much into the output, and who comes next: interactive streams before bulk ones,
//! and these in turn.

use std::collections::VecDeque;

use crate::Class;
use crate::stream::{Stream, Wait};

/// So many bytes pending make one efficient write to the link.
const BUDGET: usize = 256 << 10;
/// Interactive streams may write so much more, so that bulk never shuts them out.
const RESERVE: usize = 64 << 10;
/// What bulk may have pending while an interactive stream is open: it stands before whatever the
/// interactive stream writes next.
const BESIDE_INTERACTIVE: usize = 32 << 10;
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

    /// All who wait, in order.
    pub(crate) fn wake(&mut self) -> impl Iterator<Item = u64> {
        let queues = [&mut self.waiting_interactive, &mut self.starved, &mut self.waiting_bulk];
        queues.map(std::mem::take).into_iter().flatten()
    }

    pub(crate) fn next_round(&mut self) {
        self.round += 1;
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
