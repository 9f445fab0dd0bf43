//! Audits at a middlebox: those of others pass, its own follows; and the server's endorsement of an answer.

use levada_core::Digest;

use super::{Ended, Exchange, Flow, MAX_REQUESTS, Request};
use crate::ContextError;
use crate::audit::{self, Audit, Counters, Kind, Next};
use crate::messages;
use crate::schedule::Direction;

impl Flow {
    /// Passes on an audit; after that of the party before this one comes the own. Returns what ended, if the own one did.
    pub(crate) fn pass_audit(
        &mut self,
        whole: &[u8],
        request: impl FnOnce() -> Option<Digest>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Ended>, ContextError> {
        let body = messages::split(whole)?.1;
        let Some((expected, kind)) = self.awaiting else {
            return Err(ContextError::Unexpected("an audit without a mark"));
        };
        let audit = Audit::take(body, self.direction, self.path.hops.len())?;
        let fits = expected.fits(audit.hop, audit.kind) && audit.fits_row(kind);
        if !fits || !self.is_before(audit.hop) {
            return Err(ContextError::Unexpected("an audit of another party or kind"));
        }
        out.extend_from_slice(whole);
        if audit.hop == 0 {
            self.receive_endorsement(&audit, request);
        }
        let count = u8::try_from(self.path.hops.len()).unwrap_or(u8::MAX);
        let next = audit.next_party(self.direction, count);
        if next != self.number {
            self.awaiting = Some((Next::Party(next), Some(audit.kind)));
            return Ok(None);
        }
        self.awaiting = None;
        self.put_audit(audit.kind, out);
        self.end(audit.kind)
    }

    pub(super) fn put_audit(&mut self, kind: Kind, out: &mut Vec<u8>) {
        let exchange = if kind.is_own() { self.answered } else { self.exchanges };
        let counters = Counters { audits: self.audits, slots: self.slots, exchange };
        let (arrived, left) = &mut self.digests;
        audit::put(out, (self.number, kind), (arrived, left), (&self.audit_key, counters), &[]);
        // The digests run on over own answers, so that the server's next audit covers the rest.
        if !kind.is_own() {
            arrived.reset();
            left.reset();
        }
        self.audits += 1;
        self.inserted = 0;
        for other in &mut self.others {
            other.audited();
        }
    }

    /// What the own audit ends.
    fn end(&mut self, kind: Kind) -> Result<Option<Ended>, ContextError> {
        let ended = match (kind, self.direction) {
            (Kind::Part | Kind::OwnPart, _) => return Ok(None),
            (Kind::Exchange, Direction::ToServer) => {
                let exchange = std::mem::take(&mut self.exchange);
                let emptied = exchange.own_head
                    && exchange.arrived_head
                    && exchange.bytes == 0
                    && !exchange.untouchable;
                if self.requests.len() == MAX_REQUESTS {
                    return Err(ContextError::Flood("requests without an answer"));
                }
                self.requests.push_back(Request { digest: exchange.digest, emptied });
                self.exchanges += 1;
                Ended { number: self.exchanges - 1, endorsed: false }
            }
            (Kind::Exchange, Direction::ToClient) => {
                let endorsed = std::mem::take(&mut self.endorsed) && !self.exchange.foreign;
                self.exchange = Exchange::default();
                // The server's empty answer to a request that a middlebox has answered comes later than that.
                self.answered = self.answered.max(self.exchanges + 1);
                self.exchanges += 1;
                Ended { number: self.exchanges - 1, endorsed }
            }
            (Kind::OwnAnswer, _) => {
                self.exchange = Exchange::default();
                self.answered += 1;
                Ended { number: self.answered - 1, endorsed: false }
            }
        };
        for context in &mut self.contexts {
            (context.begun, context.ended) = (false, false);
        }
        Ok(Some(ended))
    }

    /// The server's audit: at the end of an exchange it may prove the answer.
    fn receive_endorsement(&mut self, audit: &Audit, request: impl FnOnce() -> Option<Digest>) {
        let counters =
            Counters { audits: self.server_audits, slots: self.slots, exchange: self.exchanges };
        self.server_audits += 1;
        self.endorsed = false;
        if self.direction == Direction::ToServer || audit.kind != Kind::Exchange {
            return;
        }
        let tag = audit.endorsements.get(usize::from(self.number) - 1);
        let request = request().filter(|_| self.wants_endorsements);
        self.endorsed = match (tag, request, &self.endorse_key) {
            (Some(tag), Some(request), Some(key)) => {
                audit::endorses(key, counters, (&request, &self.exchange.digest), tag)
            }
            _ => false,
        };
    }
}
