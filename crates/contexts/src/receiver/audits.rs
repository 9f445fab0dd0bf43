//! Audits at the receiving endpoint, and what they end: exchanges, and answers of middleboxes.

use std::collections::VecDeque;

use levada_core::Digest;

use super::exchange::{Exchange, TWO_ANSWERS};
use super::{NO_SECRET, Received, Receiver, Request};
use crate::ContextError;
use crate::audit::{self, Audit, Counters, Kind, Next};
use crate::path::{Context, Purpose, Right};
use crate::schedule::Direction;

impl Receiver {
    /// Takes the body of an AUDIT. After the last one, what it covers is appended to `out`. Returns
    /// a request that has ended.
    pub(crate) fn receive_audit(
        &mut self,
        body: &[u8],
        out: &mut VecDeque<Received>,
    ) -> Result<Option<Request>, ContextError> {
        let hops = u8::try_from(self.keys.path.hops.len()).unwrap_or(u8::MAX);
        let audit = Audit::take(body, self.direction, hops.into())?;
        let hop = audit.hop;
        let kind = audit.kind;
        let Some(audits) = &mut self.audits else {
            return Err(ContextError::Unexpected("an audit without a mark"));
        };
        let first = audits.all.first().map(|first| first.kind);
        if hop > hops || !audits.next.fits(hop, kind) || !audit.fits_row(first) {
            return Err(ContextError::Unexpected("an audit of another party or kind"));
        }
        let party = &mut self.parties[usize::from(hop)];
        let exchange = self.exchanges.counter(kind);
        let counters = Counters { audits: party.audits, slots: self.contexts.slots, exchange };
        if party.audit.is_none() {
            party.audit = self.keys.audit(hop, self.direction);
        }
        let key = party.audit.as_ref().ok_or(NO_SECRET)?;
        audit.verify(key, counters)?;
        party.audits += 1;
        party.counter.audited();
        audits.next = Next::Party(audit.next_party(self.direction, hops));
        audits.all.push(audit);
        let last = match self.direction {
            Direction::ToServer => hops,
            Direction::ToClient => 1,
        };
        if hop != last {
            return Ok(None);
        }
        audit::walk(&self.keys.path, &self.digests, &audits.all)?;
        let author = audits.all.first().map_or(0, |first| first.hop);
        self.audits = None;
        if kind.is_own() {
            return self.end_own(kind, author, out).map(|()| None);
        }
        self.digests.reset();
        if kind == Kind::Exchange {
            return self.end_exchange(out);
        }
        // Whether a request was emptied is known when it has a byte, or at its end.
        let pending_emptied = self.exchange.bytes == 0 && self.contexts.is_begun();
        if self.direction == Direction::ToServer && pending_emptied {
            self.waiting.hand_up_control(out);
            return Ok(None);
        }
        if self.exchanges.next_is_answered() && self.exchange.bytes > 0 {
            return Err(TWO_ANSWERS);
        }
        self.waiting.hand_up(out);
        Ok(None)
    }

    /// The answer of a middlebox, or a part of it: the author must be allowed to write everything
    /// that an answer consists of, and nothing of another party behind it may be in it.
    fn end_own(
        &mut self,
        kind: Kind,
        author: u8,
        out: &mut VecDeque<Received>,
    ) -> Result<(), ContextError> {
        if !self.exchange.may_be_of(author) {
            return Err(ContextError::Unexpected("an answer of a middlebox within another one"));
        }
        let heads = [Purpose::RequestHead, Purpose::ResponseHead];
        let complete = heads.iter().all(|purpose| self.keys.path.context(*purpose).is_some());
        let named = |context: &&Context| {
            let purpose = context.purpose as u8;
            (Purpose::RequestHead as u8..=Purpose::ResponseBody as u8).contains(&purpose)
        };
        let at = usize::from(author) - 1;
        let contexts = self.keys.path.contexts.iter().filter(named);
        let mut rights = contexts.map(|context| context.rights[at]);
        if !complete || rights.any(|right| right != Right::Write) {
            let what = "answer a request";
            return Err(ContextError::NoRight { hop: author, context: 1, what });
        }
        if self.waiting.has_foreign(author) {
            return Err(ContextError::Unexpected("an answer of a middlebox among other records"));
        }
        // What stands in context 0 waits for an audit of the endpoint.
        self.waiting.hand_up_data(out);
        self.exchange.author = Some(author);
        if kind == Kind::OwnPart {
            return Ok(());
        }
        self.end_messages();
        self.exchanges.end_own_answer();
        out.push_back(Received::Exchange { by: author });
        Ok(())
    }

    fn end_exchange(
        &mut self,
        out: &mut VecDeque<Received>,
    ) -> Result<Option<Request>, ContextError> {
        let mut messages = self.contexts.of_messages().iter();
        if messages.any(|context| context.begun && !context.ended) {
            return Err(ContextError::Truncated("an exchange with a message that has no end"));
        }
        if !self.contexts.is_begun() {
            return Err(ContextError::Malformed("an exchange without a record"));
        }
        let exchange = self.end_messages();
        let empty = exchange.bytes == 0;
        // A request that was emptied on the way has as many records as before.
        let emptied = exchange.is_emptied() && self.direction == Direction::ToServer;
        if empty && !emptied && !exchange.shape.is_empty_exchange(self.head) {
            return Err(ContextError::Malformed("an exchange without bytes, in another form"));
        }
        if self.direction == Direction::ToServer {
            self.exchanges.end_request();
            let none = vec![Digest::default(); self.requests.len()];
            let digests = std::mem::replace(&mut self.requests, none);
            self.hand_up(!emptied, out);
            return Ok(Some(Request { digests, emptied }));
        }
        let wanted = self.exchanges.end_answer(empty)?;
        self.hand_up(wanted, out);
        Ok(None)
    }

    fn hand_up(&mut self, wanted: bool, out: &mut VecDeque<Received>) {
        if wanted {
            self.waiting.hand_up(out);
            out.push_back(Received::Exchange { by: 0 });
        } else {
            self.waiting.discard_data(out);
        }
    }

    /// Ends the messages of the current exchange. Returns what has arrived of it.
    fn end_messages(&mut self) -> Exchange {
        self.contexts.end_messages();
        std::mem::take(&mut self.exchange)
    }
}
