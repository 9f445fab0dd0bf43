//! The current exchange at the receiving endpoint, and those that have ended.

use std::collections::VecDeque;

use super::shape::Shape;
use crate::ContextError;
use crate::audit::Kind;
use crate::record::Head;

/// The current exchange, as far as it has arrived.
#[derive(Default)]
pub(super) struct Exchange {
    /// It has a record of the endpoint, or what took its place.
    has_slot: bool,
    /// The middlebox whose own answer has begun.
    pub(super) author: Option<u8>,
    /// Its records.
    pub(super) shape: Shape,
    /// The length of its messages.
    pub(super) bytes: usize,
    /// A middlebox has replaced the head.
    replaced_head: bool,
}

impl Exchange {
    /// Adds a record with `length` bytes of data, of another context than 0. `head_context` is the
    /// context of the head of a request or an answer.
    pub(super) fn add(&mut self, head: Head, length: usize, head_context: u8) {
        self.has_slot |= head.slot;
        self.shape.add(head);
        self.bytes += length;
        self.replaced_head |= head.origin != 0 && head.context == head_context;
    }

    /// Tells whether all of it may be an own answer of this middlebox.
    pub(super) fn may_be_of(&self, author: u8) -> bool {
        !self.has_slot && self.author.is_none_or(|begun| begun == author)
    }

    /// Tells whether it has no bytes because a middlebox has replaced the head.
    pub(super) fn is_emptied(&self) -> bool {
        self.bytes == 0 && self.replaced_head
    }
}

/// The numbers of exchanges that have ended, and of answers.
#[derive(Default)]
pub(super) struct Exchanges {
    /// By an audit of the endpoint.
    ended: u64,
    /// At a client: how many requests have an answer.
    answered: u64,
    /// At a client: the requests that a middlebox has answered, until the server's empty answer.
    by_others: VecDeque<u64>,
}

impl Exchanges {
    /// The counter that an audit of this kind covers.
    pub(super) fn counter(&self, kind: Kind) -> u64 {
        if kind.is_own() { self.answered } else { self.ended }
    }

    /// The number of requests that middleboxes have answered, and the server not yet.
    pub(super) fn by_others(&self) -> usize {
        self.by_others.len()
    }

    /// Tells whether a middlebox has answered the request that the server answers next.
    pub(super) fn next_is_answered(&self) -> bool {
        self.by_others.front() == Some(&self.ended)
    }

    /// A request has ended.
    pub(super) fn end_request(&mut self) {
        self.ended += 1;
    }

    /// An answer of a middlebox has ended.
    pub(super) fn end_own_answer(&mut self) {
        self.by_others.push_back(self.answered);
        self.answered += 1;
    }

    /// An answer of the server has ended. Returns whether it is handed up: it is if no middlebox
    /// has answered in place of the server.
    pub(super) fn end_answer(&mut self, empty: bool) -> Result<bool, ContextError> {
        let replaced = self.next_is_answered();
        self.ended += 1;
        match (replaced, empty) {
            (true, false) => Err(TWO_ANSWERS),
            (false, true) => Err(ContextError::Truncated("a request that was emptied on the way")),
            (true, true) => {
                self.by_others.pop_front();
                Ok(false)
            }
            (false, false) => {
                self.answered += 1;
                Ok(true)
            }
        }
    }
}

pub(super) const TWO_ANSWERS: ContextError = ContextError::Unexpected("two answers to one request");
