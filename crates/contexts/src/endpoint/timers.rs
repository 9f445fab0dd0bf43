//! The time limits of an endpoint.

use std::time::Instant;

use super::{PathConnection, Stage};
use crate::keepalive::Keepalive;
use crate::{ContextError, Role};

impl PathConnection {
    /// Whether [`Self::receive`] will be called when bytes arrive. While it will not, because what
    /// was received is not taken, the neighbour's silence means nothing.
    pub fn set_reading(&mut self, reading: bool, now: Instant) {
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.set_reading(reading, now);
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn timeout(&self) -> Option<Instant> {
        self.deadline.or(self.keepalive.as_ref().map(Keepalive::timeout))
    }

    /// Ends the session if its handshake takes too long or the neighbour is dead; sends a PING if
    /// the neighbour is silent.
    ///
    /// # Errors
    /// [`ContextError::Timeout`].
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ContextError> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            let (what, from) = self.awaited();
            self.fatal(Err(ContextError::Timeout { what, from }))?;
        }
        if let Some(keepalive) = &mut self.keepalive {
            let alive = keepalive.check(now);
            keepalive.put(&mut self.out);
            self.fatal(alive)?;
        }
        Ok(())
    }

    /// What the handshake waits for.
    fn awaited(&self) -> (&'static str, Role) {
        match &self.stage {
            Stage::Client(handshake) => handshake.awaited(),
            Stage::Server(handshake) => handshake.awaited(),
            Stage::Open(open) => ("READY", open.awaited()),
            Stage::Ended => ("anything", Role::Server),
        }
    }
}
