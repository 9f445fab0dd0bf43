//! Audits at a middlebox: it passes on the audits of other parties, then adds its own.

use levada_core::Digest;

use super::Flow;
use super::exchanges::Ended;
use crate::ContextError;
use crate::audit::{Audit, Counters, Kind, Next};
use crate::messages;
use crate::schedule::Direction;

impl Flow {
    /// Passes on an audit; after that of the party before this one comes the own. Returns what
    /// ended, if the own one did.
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
        let counters = (self.contexts.slots, self.exchanges.counter(kind));
        self.audits.put((self.number, kind), counters, out);
        self.own.audited();
        for other in &mut self.others {
            other.audited();
        }
    }

    /// Takes an audit of the endpoint, which may endorse an answer.
    fn receive_endorsement(&mut self, audit: &Audit, request: impl FnOnce() -> Option<Digest>) {
        let audits = self.endorsements.audits;
        let slots = self.contexts.slots;
        let counters = Counters { audits, slots, exchange: self.exchanges.ended };
        let answer = &self.exchanges.current.digest;
        self.endorsements.receive(audit, (self.number, counters), answer, request);
    }

    /// Ends what the own audit ends.
    fn end(&mut self, kind: Kind) -> Result<Option<Ended>, ContextError> {
        let exchanges = &mut self.exchanges;
        let ended = match (kind, self.direction) {
            (Kind::Part | Kind::OwnPart, _) => return Ok(None),
            (Kind::Exchange, Direction::ToServer) => exchanges.end_request()?,
            (Kind::Exchange, Direction::ToClient) => {
                exchanges.end_answer(self.endorsements.take_verified())
            }
            (Kind::OwnAnswer, _) => exchanges.end_own_answer(),
        };
        self.contexts.end_messages();
        Ok(Some(ended))
    }
}
