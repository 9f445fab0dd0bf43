//! The exchanges of one direction at a middlebox.

use std::collections::VecDeque;

use levada_core::Digest;

use crate::ContextError;
use crate::audit::Kind;

/// The maximum number of requests without an answer.
pub(crate) const MAX_REQUESTS: usize = 64;

/// The current exchange, and those that have ended.
#[derive(Default)]
pub(super) struct Exchanges {
    pub(super) current: Exchange,
    /// The number of exchanges that the endpoint has ended.
    pub(super) ended: u64,
    /// Towards the server: requests that were sent on and not answered by the server yet, the
    /// oldest first.
    requests: VecDeque<Request>,
    /// Towards the client: how many requests have an answer, the server's or a middlebox's.
    pub(super) answered: u64,
    /// Towards the client: of an own answer that was begun, the records since the last mark.
    pub(super) answering: Option<usize>,
}

/// The current exchange, as far as it has passed.
#[derive(Default)]
pub(super) struct Exchange {
    /// The digest of the records that this middlebox may read, as it sent them on (to the server),
    /// or as the server sent them.
    pub(super) digest: Digest,
    /// Bytes that were sent on.
    pub(super) bytes: usize,
    /// This middlebox has replaced the head, which had bytes as it arrived.
    pub(super) own_head: bool,
    pub(super) arrived_head: bool,
    /// It has a record that this middlebox cannot read, or one from before the start: it must not
    /// be answered here.
    pub(super) untouchable: bool,
    /// A middlebox behind has changed something.
    pub(super) foreign: bool,
}

/// A request that was sent on.
pub(crate) struct Request {
    digest: Digest,
    /// This middlebox has emptied it, and will answer it.
    pub(crate) emptied: bool,
}

/// An exchange that has passed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The number of the request, from 0.
    pub(crate) number: u64,
    /// The server has proved that it gave this answer to the request that this middlebox sent on.
    pub(crate) endorsed: bool,
}

impl Exchange {
    /// Tells whether it is a request that this middlebox has emptied.
    fn is_emptied(&self) -> bool {
        self.own_head && self.arrived_head && self.bytes == 0 && !self.untouchable
    }
}

impl Exchanges {
    /// The counter that an audit of this kind covers.
    pub(super) fn counter(&self, kind: Kind) -> u64 {
        if kind.is_own() { self.answered } else { self.ended }
    }

    /// Towards the server: the client has ended a request.
    pub(super) fn end_request(&mut self) -> Result<Ended, ContextError> {
        let exchange = std::mem::take(&mut self.current);
        if self.requests.len() == MAX_REQUESTS {
            return Err(ContextError::Flood("requests without an answer"));
        }
        let emptied = exchange.is_emptied();
        self.requests.push_back(Request { digest: exchange.digest, emptied });
        self.ended += 1;
        Ok(Ended { number: self.ended - 1, endorsed: false })
    }

    /// Towards the client: the server has ended an answer.
    pub(super) fn end_answer(&mut self, verified: bool) -> Ended {
        let exchange = std::mem::take(&mut self.current);
        self.ended += 1;
        // The server's empty answer to a request that a middlebox has answered arrives later.
        self.answered = self.answered.max(self.ended);
        Ended { number: self.ended - 1, endorsed: verified && !exchange.foreign }
    }

    /// Towards the client: a middlebox has ended its own answer.
    pub(super) fn end_own_answer(&mut self) -> Ended {
        self.current = Exchange::default();
        self.answering = None;
        self.answered += 1;
        Ended { number: self.answered - 1, endorsed: false }
    }

    /// See [`super::Flow::request`].
    pub(super) fn request(&self, number: u64) -> Option<&Request> {
        let first = self.ended - self.requests.len() as u64;
        self.requests.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// See [`super::Flow::take_request`].
    pub(super) fn take_request(&mut self) -> Option<Digest> {
        let request = self.requests.pop_front()?;
        (!request.emptied).then_some(request.digest)
    }
}
