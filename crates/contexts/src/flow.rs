//! The records of one direction at a middlebox.

mod audits;
mod endorsements;
mod exchanges;
mod keys;
mod own;
mod own_audits;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{Kind, Next};
use super::contexts::Contexts;
use super::counter::OriginCounter;
use super::hop::HopBound;
use super::inspector::{Action, Inspector, Piece};
use super::path::{Path, Right};
use super::record::{Head, Meta, View};
use super::schedule::{ContextKeys, Direction};
use super::sender::head_context;
use endorsements::Endorsements;
pub(crate) use exchanges::MAX_REQUESTS;
use exchanges::{Exchanges, Request};
use keys::{Keys, Secrets};
use own_audits::OwnAudits;

/// The records of one direction.
pub(crate) struct Flow {
    direction: Direction,
    pub(crate) number: u8,
    pub(crate) path: Path,
    /// The context of the head of a request or answer.
    head: u8,
    /// The server has started the session.
    started: bool,
    contexts: Contexts<Keys>,
    secrets: Secrets,
    audits: OwnAudits,
    /// Whose audit is next, and the kind of the first, while audits are expected before the own
    /// one.
    awaiting: Option<(Next, Option<Kind>)>,
    /// The records that this middlebox sealed.
    own: OriginCounter,
    /// The records of other middleboxes, by origin.
    others: Vec<OriginCounter>,
    exchanges: Exchanges,
    endorsements: Endorsements,
}

impl Flow {
    pub(crate) fn new(
        bound: &HopBound,
        keys: &[Option<ContextKeys>],
        direction: Direction,
        wants_endorsements: bool,
    ) -> Result<Self, ContextError> {
        let HopBound { path, number, secrets, th2, aes, .. } = bound;
        let missing = levada_channel::Error::Internal("a secret of this middlebox is missing");
        let given = |context: u8| {
            Keys::new(usize::from(context).checked_sub(1).and_then(|at| keys.get(at)?.clone()))
        };
        let audit_key = secrets.audit(direction, th2).ok_or(missing)?;
        let endorse_key = secrets.endorse(th2).filter(|_| direction == Direction::ToClient);
        Ok(Self {
            direction,
            number: *number,
            path: path.clone(),
            head: head_context(path, direction),
            started: false,
            contexts: Contexts::new(path, given),
            secrets: Secrets { hop: secrets.clone(), th2: *th2, aes: *aes },
            audits: OwnAudits::new(path, audit_key),
            awaiting: None,
            own: OriginCounter::default(),
            others: vec![OriginCounter::default(); path.hops.len() + 1],
            exchanges: Exchanges::default(),
            endorsements: Endorsements::new(endorse_key, wants_endorsements),
        })
    }

    pub(crate) fn pass_record(
        &mut self,
        whole: &mut [u8],
        inspector: &mut dyn Inspector,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        if self.awaiting.is_some() {
            return Err(ContextError::Unexpected("a record where an audit belongs"));
        }
        let head = Head::of(whole)?;
        self.check(head)?;
        let context = &self.contexts[head.context];
        let view = View::new(whole, context.layout, context.slots, self.contexts.slots)?;
        if let Some(counter) = self.others.get_mut(usize::from(head.origin)) {
            counter.count(&view)?;
        }
        self.audits.arrived.add_view(&view, whole);
        // The copy is sent on; the received bytes are decrypted in place.
        let start = out.len();
        out.extend_from_slice(whole);
        let inspected = self.inspect(&view, whole, inspector);
        if !matches!(inspected, Ok((Action::Pass, _))) {
            out.truncate(start);
        }
        let (action, read) = inspected?;
        // Requests count as this middlebox sends them on, answers as the server sent them.
        let as_received = action == Action::Pass || self.direction == Direction::ToClient;
        if let Some((hash, length)) = read.filter(|_| as_received) {
            self.note(head, &view.meta, &hash, length);
        }
        match action {
            Action::Pass => self.audits.left.add_view(&view, &out[start..]),
            Action::Replace(data) => self.put(head, &data, out)?,
            Action::Block(why) => return Err(ContextError::Refused(why)),
        }
        let exchange = &mut self.exchanges.current;
        exchange.foreign |= head.origin != 0;
        exchange.untouchable |= head.context > 0 && (read.is_none() || !self.started);
        exchange.arrived_head |=
            head.context == self.head && read.is_some_and(|(_, length)| length > 0);
        self.contexts.add(head);
        if head.mark {
            self.awaiting = Some((Next::after(head), None));
        }
        Ok(())
    }

    /// Adds a record that is sent on, and that this middlebox may read, to the exchange.
    fn note(&mut self, head: Head, meta: &Meta, hash: &Digest, length: usize) {
        let exchange = &mut self.exchanges.current;
        if self.endorsements.wanted {
            exchange.digest = sha256(&[&exchange.digest, meta, hash]);
        }
        exchange.bytes += length;
        exchange.own_head |= head.origin == self.number && head.context == self.head;
    }

    fn check(&self, head: Head) -> Result<(), ContextError> {
        let Head { context: number, origin, .. } = head;
        let Some(context) = self.contexts.get(number) else {
            return Err(ContextError::Malformed("a record of an unknown context"));
        };
        if origin != 0 {
            if !self.is_before(origin) {
                return Err(ContextError::Unexpected("a record of a middlebox behind this one"));
            }
            if self.path.right(number, origin) != Right::Write {
                let what = "write a record";
                return Err(ContextError::NoRight { hop: origin, context: number, what });
            }
        }
        // A server that refuses a session sends nothing but context 0.
        if number > 0 && self.direction == Direction::ToClient && !self.started {
            return Err(ContextError::Unexpected("a record of a session that was not started"));
        }
        if number == 0 && head.end || !head.slot && (head.end || origin == 0) {
            return Err(ContextError::Malformed("the flags of a record"));
        }
        if number > 0 && context.ended {
            return Err(ContextError::Unexpected("a record after the end of its message"));
        }
        Ok(())
    }

    /// Whether a party sends to this middlebox in this direction, directly or through others.
    fn is_before(&self, hop: u8) -> bool {
        match self.direction {
            _ if hop == 0 => true,
            Direction::ToServer => hop < self.number,
            Direction::ToClient => hop > self.number && usize::from(hop) <= self.path.hops.len(),
        }
    }

    /// Opens the record in place if this middlebox may, and asks what to do with it. Returns the
    /// hash and length of what it read, too.
    fn inspect(
        &mut self,
        view: &View,
        whole: &mut [u8],
        inspector: &mut dyn Inspector,
    ) -> Result<(Action, Option<(Digest, usize)>), ContextError> {
        let Head { context: number, origin, end, .. } = view.head;
        let context = &mut self.contexts[number];
        let slots = context.slots;
        let pad = context.layout.pad;
        let Some(keys) = context.keys.derive(&self.secrets, number, self.direction) else {
            return Ok((Action::Pass, None));
        };
        let opener = (&mut keys.open, keys.writer.is_some() || self.endorsements.wanted);
        let (data, hash) = view.open(opener, slots, pad, whole)?;
        let hash = hash.unwrap_or_default();
        if let (Some(key), Some(tag)) = (&keys.writer, view.writer_tag(whole))
            && !key.verify(&view.tagged(&hash), tag)
        {
            return Err(ContextError::Forged {
                what: "a record, by a party that may not write",
                hop: Some(origin),
                context: Some(number),
            });
        }
        let data = &whole[data];
        let direction = self.direction;
        let action = inspector.record(Piece { direction, context: number, data, end, origin });
        if matches!(action, Action::Replace(_)) && keys.writer.is_none() {
            let what = "change a record";
            return Err(ContextError::NoRight { hop: self.number, context: number, what });
        }
        Ok((action, Some((hash, data.len()))))
    }

    /// Whether an own answer was begun and not ended.
    pub(crate) fn is_answering(&self) -> bool {
        self.exchanges.answering.is_some()
    }

    /// Whether an own answer may be sent now: nothing of another one has passed without its end.
    pub(crate) fn is_between_exchanges(&self) -> bool {
        self.awaiting.is_none() && !self.contexts.is_begun()
    }

    /// Whether a record had a MARK, and its audits are not complete here.
    pub(crate) fn awaits_audit(&self) -> bool {
        self.awaiting.is_some()
    }

    /// The right in each context, from 1, as far as the keys reach.
    #[cfg(test)]
    pub(crate) fn rights_by_keys(&self) -> Vec<Right> {
        let right = |keys: &Keys| match &keys.given {
            Some(ContextKeys { write: Some(_), .. }) => Right::Write,
            Some(_) => Right::Read,
            None => Right::None,
        };
        self.contexts.of_messages().iter().map(|context| right(&context.keys)).collect()
    }

    /// The number of the lowest request without an answer.
    pub(crate) fn answered(&self) -> u64 {
        self.exchanges.answered
    }

    /// Towards the server: a request by its number, unless the server has answered it.
    pub(crate) fn request(&self, number: u64) -> Option<&Request> {
        self.exchanges.request(number)
    }

    /// Towards the server: takes the oldest request, which the server has answered. None if this
    /// middlebox has emptied it: then the answer is to nothing.
    pub(crate) fn take_request(&mut self) -> Option<Digest> {
        self.exchanges.take_request()
    }

    /// The server has started the session.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }
}
