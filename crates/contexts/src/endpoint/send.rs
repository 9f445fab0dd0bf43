//! What an endpoint sends.

use std::time::Instant;

use super::{NOT_OPEN, PathConnection, Stage};
use crate::keepalive::Keepalive;
use crate::messages::Start;
use crate::receiver::Received;
use crate::schedule::Direction;
use crate::sender::{CONTROL_DATA, CONTROL_ERROR, Sender};
use crate::{ContextError, Role};

impl PathConnection {
    /// Commits the start of the session at a server, which then may send. `realm` names those who
    /// may share stored answers; None refuses the session: only context 0 may follow.
    ///
    /// # Errors
    /// [`ContextError::State`] if this is no server, or it has started already.
    pub fn start(
        &mut self,
        started: bool,
        realm: Option<[u8; 16]>,
        now: Instant,
    ) -> Result<(), ContextError> {
        let Stage::Open(open) = &mut self.stage else { return Err(NOT_OPEN) };
        let tickets = open.unstarted.take().ok_or(ContextError::State("it has started"))?;
        open.put_start(Start { started, realm: realm.unwrap_or_default() }, &mut self.out)?;
        self.out.extend_from_slice(&tickets);
        self.keepalive = Some(Keepalive::new(Role::last(open.bound.keys.hops.len()), now));
        open.refused = !started;
        if started {
            open.answer_emptied()?;
        } else {
            open.received
                .retain(|one| !matches!(one, Received::Data { .. } | Received::Exchange { .. }));
            open.requests.clear();
        }
        open.hand_up(&mut self.events);
        Ok(())
    }

    /// Whether an exchange can be begun or goes on: a client has at most 64 requests without an
    /// answer. [`super::PathEvent::Writable`] tells when it can again.
    pub fn is_writable(&self) -> bool {
        match &self.stage {
            Stage::Open(open) => open.sender.is_within_exchange() || !open.is_full(),
            _ => true,
        }
    }

    /// Appends data to a context's message in the current exchange.
    ///
    /// # Errors
    /// [`ContextError::State`] if the session is not open for this, there is no such context, its
    /// message has ended, or a client has as many requests without an answer as it may.
    pub fn write(&mut self, context: u8, data: &[u8]) -> Result<(), ContextError> {
        self.exchange_sender()?.write(context, data)
    }

    /// Begins a context's message in the current exchange without data. With [`Self::flush`] the
    /// end of an earlier message leaves at once, which otherwise waits because the exchange may end
    /// with it. It costs an empty record.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn begin(&mut self, context: u8) -> Result<(), ContextError> {
        self.exchange_sender()?.begin(context)
    }

    /// Ends a context's message in the current exchange.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn end(&mut self, context: u8) -> Result<(), ContextError> {
        self.exchange_sender()?.end(context)
    }

    /// Ends the exchange: a request of a client, or the answer of a server to the oldest request
    /// without one.
    ///
    /// # Errors
    /// As [`Self::write`]; at a server also if no request is without an answer.
    pub fn finish(&mut self) -> Result<(), ContextError> {
        self.exchange_sender()?;
        let Stage::Open(open) = &mut self.stage else { return Err(NOT_OPEN) };
        if open.sender.direction() == Direction::ToServer {
            open.unanswered += 1;
            return open.sender.finish(&[]);
        }
        if !open.sender.has_bytes() {
            return Err(ContextError::State("an answer without a byte"));
        }
        let request = open.requests.pop_front();
        let request = request.ok_or(ContextError::State("no request is open"))?;
        open.sender.finish(&request.digests)?;
        open.answer_emptied()
    }

    /// Sends a message in context 0, which only the endpoints can read.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn control(&mut self, data: &[u8]) -> Result<(), ContextError> {
        self.sender()?.control(CONTROL_DATA, data)
    }

    /// Seals what is open, because nothing more is to be sent for now. [`Self::transmit`] does not
    /// do so by itself.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn flush(&mut self) -> Result<(), ContextError> {
        self.sender()?.flush()
    }

    /// Ends this direction, so that the peer knows that nothing is missing.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn close(&mut self) -> Result<(), ContextError> {
        self.sender()?.fin()?;
        let Stage::Open(open) = &mut self.stage else { return Err(NOT_OPEN) };
        open.sender.transmit(&mut self.out);
        open.bound.tail.close(&mut self.out)
    }

    /// Ends the session with an error, which the peer is told in context 0.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn abort(&mut self, reason: &[u8]) -> Result<(), ContextError> {
        self.sender()?.control(CONTROL_ERROR, reason)
    }

    fn sender(&mut self) -> Result<&mut Sender, ContextError> {
        match &mut self.stage {
            Stage::Open(open) if open.unstarted.is_none() => Ok(&mut open.sender),
            _ => Err(NOT_OPEN),
        }
    }

    /// As [`Self::sender`], for what is not context 0.
    fn exchange_sender(&mut self) -> Result<&mut Sender, ContextError> {
        match &self.stage {
            Stage::Open(open) if open.refused => Err(ContextError::State("the session is refused")),
            _ if !self.is_writable() => {
                Err(ContextError::State("64 requests are without an answer"))
            }
            _ => self.sender(),
        }
    }
}
