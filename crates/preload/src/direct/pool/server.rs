//! A process that has the listener: it takes the connections that wait.

use std::sync::atomic::Ordering;

use levada_ring::ends::End;
use levada_ring::queue::{Open, Waiting};
use levada_ring::{SEGMENTS, Side, Waiter};

use super::{Pair, Role};

impl Pair {
    /// Returns true if this process takes connections in it for the listener with this name.
    pub fn is_of(&self, name: u32) -> bool {
        matches!(self.role(), Role::Server(own, _) if own == name) && self.is_own()
    }

    /// Shows the client how this process takes connections.
    pub fn let_in(&self, open: Open) {
        self.queue().open(self.slot(), open);
    }

    /// Shows the client that this process no longer takes connections.
    pub fn close(&self) {
        self.queue().close(self.slot());
        self.has_closed.store(true, Ordering::SeqCst);
    }

    /// A thread of this process is about to sleep until a bell.
    pub fn announce(&self, bell: u8) {
        self.queue().announce(self.slot(), bell);
    }

    /// Takes the connection that has waited longest, and enters the pool. Its segment, and its
    /// generation.
    pub fn take(&self) -> Option<(u8, u64)> {
        for _ in 0..SEGMENTS {
            let waiting = self.first()?;
            if !self.queue().take(waiting, self.slot()) {
                continue;
            }
            let number = waiting.segment;
            self.taken.set(number, true);
            let is_entered = self.enter();
            return is_entered.then(|| (number, self.segment(number).ends().generation()));
        }
        None
    }

    /// Returns true if a connection waits for this process.
    pub fn has_waiting(&self) -> bool {
        self.side() == Side::Acceptor && self.is_own() && self.first().is_some()
    }

    /// A segment that this process uses has no connection that waits, whatever the client writes.
    pub(super) fn first(&self) -> Option<Waiting> {
        let made = self.queue().made();
        let is_settled = made == self.settled.load(Ordering::Relaxed);
        if is_settled || !self.queue().is_known(self.slot()) {
            return None;
        }
        let first = self.queue().first(|number| !self.taken.has(number));
        if first.is_none() {
            self.settled.store(made, Ordering::Relaxed);
        }
        first
    }

    /// Resets a connection that this process has taken, and no descriptor is for. Returns how the
    /// client is to be woken.
    pub fn reset(&self, number: u8, generation: u64) -> [Option<Waiter>; 2] {
        let segment = self.segment(number);
        segment.ends().end(Side::Acceptor, End::Reset);
        let waiters = segment.end_all(Side::Acceptor);
        self.end(number, generation, true);
        waiters
    }
}
