//! A session after the handshake: READY, records and audits that arrive, and what is handed up.

use std::collections::VecDeque;

use super::event::PathEvent;
use crate::client::Bound;
use crate::flow::MAX_REQUESTS;
use crate::frame;
use crate::messages::{self, Start, check_ready, put_ready};
use crate::receiver::{PIECE_MEMORY, Received, Receiver, Request};
use crate::schedule::{Direction, EndpointKeys};
use crate::sender::Sender;
use crate::{ContextError, Role};

/// A session after SBIND at the client, after every READY at the server.
pub(super) struct Open {
    pub(super) bound: Bound,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// At a client, whose READY is next; None if all have come.
    pub(super) ready: Option<Ready>,
    /// At a server that has not started the session: the tickets that follow its READY.
    pub(super) unstarted: Option<Vec<u8>>,
    /// The server has refused the session: only context 0 may follow.
    pub(super) refused: bool,
    /// Received, audited, and not handed up, with what it takes in memory.
    pub(super) received: VecDeque<Received>,
    pub(super) held: usize,
    /// The peer's end was handed up.
    pub(super) closed: bool,
    /// At a server: the requests without an answer.
    pub(super) requests: VecDeque<Request>,
    /// At a client: how many requests have no answer.
    pub(super) unanswered: usize,
}

/// The party whose READY a client waits for.
#[derive(Clone, Copy)]
pub(super) enum Ready {
    Server,
    Hop(u8),
}

impl Open {
    /// `unstarted` are the tickets at a server, and none at a client.
    pub(super) fn new(bound: Bound, sends: Direction, unstarted: Option<Vec<u8>>) -> Self {
        let sender = Sender::new(bound.keys.clone(), sends);
        let receiver = Receiver::new(bound.keys.clone(), sends.reverse());
        Self {
            bound,
            sender,
            receiver,
            ready: (sends == Direction::ToServer).then_some(Ready::Server),
            unstarted,
            refused: false,
            received: VecDeque::new(),
            held: 0,
            closed: false,
            requests: VecDeque::new(),
            unanswered: 0,
        }
    }

    /// READY comes from the server first, then from the middlebox next to it, and so on.
    pub(super) fn receive_ready(&mut self, whole: &[u8]) -> Result<(), ContextError> {
        let body = messages::split(whole)?.1;
        let hops = self.bound.keys.hops.len();
        let (party, tag, next) = match self.ready {
            Some(Ready::Server) => {
                if body.len() != 17 + messages::START * hops {
                    return Err(ContextError::Malformed("the starts in a READY"));
                }
                (0, &body[..17], u8::try_from(hops).unwrap_or(u8::MAX))
            }
            Some(Ready::Hop(hop)) => (hop, body, hop - 1),
            None => return Err(ContextError::Unexpected("a second READY")),
        };
        let expected = self.bound.keys.ready(party, Direction::ToClient);
        check_ready(party, tag, expected.as_ref().map(|tag| &tag[..]))?;
        self.ready = (next > 0).then_some(Ready::Hop(next));
        Ok(())
    }

    /// At a client: the party whose READY is next.
    pub(super) fn awaited(&self) -> Role {
        match self.ready {
            Some(Ready::Hop(hop)) => Role::Middlebox(hop),
            _ => Role::Server,
        }
    }

    /// At a client: whether as many requests are without an answer as may be.
    pub(super) fn is_full(&self) -> bool {
        self.unanswered + self.receiver.answered_by_others() >= MAX_REQUESTS
    }

    pub(super) fn receive_audit(&mut self, whole: &[u8]) -> Result<(), ContextError> {
        let body = messages::split(whole)?.1;
        let before = self.received.len();
        let request = self.receiver.receive_audit(body, &mut self.received)?;
        self.held += self.received.iter().skip(before).map(memory).sum::<usize>();
        let Some(request) = request else {
            let new = self.received.iter().skip(before);
            let answers = new.filter(|received| matches!(received, Received::Exchange { .. }));
            self.unanswered = self
                .unanswered
                .checked_sub(answers.count())
                .ok_or(ContextError::Unexpected("an answer without a request"))?;
            return Ok(());
        };
        if self.requests.len() == MAX_REQUESTS {
            return Err(ContextError::Flood("requests without an answer"));
        }
        self.requests.push_back(request);
        self.answer_emptied()
    }

    /// Answers the oldest requests without bytes as long as middleboxes have emptied them.
    pub(super) fn answer_emptied(&mut self) -> Result<(), ContextError> {
        if self.unstarted.is_some() || self.refused {
            return Ok(());
        }
        while self.requests.front().is_some_and(|request| request.emptied)
            && let Some(request) = self.requests.pop_front()
        {
            self.sender.finish(&request.digests)?;
        }
        Ok(())
    }

    /// Hands up what was audited; before the start only what stands in context 0.
    pub(super) fn hand_up(&mut self, events: &mut VecDeque<PathEvent>) {
        while let Some(received) = self.received.pop_front() {
            let control = matches!(received, Received::Control(_) | Received::Error(_));
            if self.unstarted.is_some() && !control {
                return self.received.push_front(received);
            }
            self.held = self.held.saturating_sub(memory(&received));
            events.push_back(PathEvent::Received(received));
        }
        if self.bound.tail.is_closed() && !std::mem::replace(&mut self.closed, true) {
            events.push_back(PathEvent::Closed);
        }
    }

    /// READY_0 of the server, with the verdict for each hop.
    pub(super) fn put_start(&self, start: Start, out: &mut Vec<u8>) -> Result<(), ContextError> {
        let EndpointKeys { secret, th2, hops, .. } = &*self.bound.keys;
        let tag = secret.ready(Direction::ToClient, th2);
        let length = 17 + messages::START * hops.len();
        let aad = [&frame::header(frame::READY, length)[..], &tag].concat();
        let mut sealed = Vec::with_capacity(messages::START * hops.len());
        for secrets in hops {
            let z = secrets.z.as_ref().ok_or(levada_channel::Error::Internal("no z"))?;
            sealed.extend(start.seal(z, th2, &aad)?);
        }
        put_ready(out, 0, &tag, &sealed);
        Ok(())
    }
}

/// What a received message takes in memory, about.
fn memory(received: &Received) -> usize {
    PIECE_MEMORY
        + match received {
            Received::Data { data, .. } | Received::Control(data) | Received::Error(data) => {
                data.len()
            }
            _ => 0,
        }
}
