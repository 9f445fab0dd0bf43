//! The records of one direction at a middlebox.

mod audits;
mod keys;
mod own;

use std::collections::VecDeque;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{Digests, Kind, Next};
use super::counter::OriginCounter;
use super::hop::HopBound;
use super::inspector::{Action, Inspector, Piece};
use super::path::{Path, Right};
use super::record::{Head, Layout, Meta, View};
use super::schedule::{ContextKeys, Direction, Secret};
use super::sender::head_context;
use keys::{Context, Secrets};

/// The records of one direction.
pub(crate) struct Flow {
    direction: Direction,
    pub(crate) number: u8,
    pub(crate) path: Path,
    contexts: Vec<Context>,
    slots: u64,
    /// As records arrived, and as they left.
    digests: (Digests, Digests),
    audit_key: Secret,
    secrets: Secrets,
    audits: u64,
    exchanges: u64,
    /// Records that this middlebox sealed.
    own: u64,
    /// Whose audit is next, and the kind of the first, while audits are expected before the own one.
    awaiting: Option<(Next, Option<Kind>)>,
    /// By origin.
    others: Vec<OriginCounter>,
    /// Records that this middlebox inserted since the last audit.
    inserted: u32,
    /// The server has started the session.
    started: bool,
    /// The context of the head of a request or answer.
    head: u8,
    exchange: Exchange,
    /// Towards the server: what was sent on and not answered by the server yet, the oldest first.
    requests: VecDeque<Request>,
    /// Towards the client: how many requests have an answer, the server's or a middlebox's.
    answered: u64,
    /// Towards the client: of an own answer that was begun, the records since the last mark.
    answering: Option<usize>,
    /// Towards the client: audits of the server.
    server_audits: u64,
    endorse_key: Option<Secret>,
    /// The endorsement of the current exchange has verified.
    endorsed: bool,
    /// Endorsements are verified, which takes a hash of each plaintext.
    wants_endorsements: bool,
}

/// What has passed of the current exchange.
#[derive(Default)]
struct Exchange {
    /// The digest of the records that this middlebox may read, as it sent them on (to the server), or as the server sent them.
    digest: Digest,
    /// Bytes that were sent on.
    bytes: usize,
    /// This middlebox has replaced the head, which had bytes as it arrived.
    own_head: bool,
    arrived_head: bool,
    /// It has a record that this middlebox cannot read, or one from before the start: it must not be answered here.
    untouchable: bool,
    /// A middlebox behind has changed something.
    foreign: bool,
}

/// A request that was sent on.
pub(crate) struct Request {
    digest: Digest,
    /// This middlebox has emptied it, and will answer it.
    pub(crate) emptied: bool,
}

/// The most requests without an answer.
pub(crate) const MAX_REQUESTS: usize = 64;

impl Flow {
    pub(crate) fn new(
        bound: &HopBound,
        keys: &[Option<ContextKeys>],
        direction: Direction,
        wants_endorsements: bool,
    ) -> Result<Self, ContextError> {
        let HopBound { path, number, secrets, th2, aes, .. } = bound;
        let missing = levada_channel::Error::Internal("a secret of this middlebox is missing");
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let context = |context: u8| {
            let given = usize::from(context).checked_sub(1).and_then(|at| keys.get(at)?.clone());
            Context {
                layout: Layout::new(path, context),
                slots: 0,
                given,
                keys: None,
                begun: false,
                ended: false,
            }
        };
        Ok(Self {
            direction,
            number: *number,
            path: path.clone(),
            contexts: (0..=count).map(context).collect(),
            slots: 0,
            digests: (Digests::new(path), Digests::new(path)),
            audit_key: secrets.audit(direction, th2).ok_or(missing)?,
            secrets: Secrets { hop: secrets.clone(), th2: *th2, aes: *aes },
            audits: 0,
            exchanges: 0,
            own: 0,
            awaiting: None,
            others: vec![OriginCounter::default(); path.hops.len() + 1],
            inserted: 0,
            started: false,
            head: head_context(path, direction),
            exchange: Exchange::default(),
            requests: VecDeque::new(),
            answered: 0,
            answering: None,
            server_audits: 0,
            endorse_key: secrets.endorse(th2).filter(|_| direction == Direction::ToClient),
            endorsed: false,
            wants_endorsements,
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
        let context = &self.contexts[usize::from(head.context)];
        let view = View::new(whole, context.layout, context.slots, self.slots)?;
        if let Some(counter) = self.others.get_mut(usize::from(head.origin)) {
            counter.count(&view)?;
        }
        self.digests.0.add_view(&view, whole);
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
            Action::Pass => self.digests.1.add_view(&view, &out[start..]),
            Action::Replace(data) => self.put(head, &data, out)?,
            Action::Block(why) => return Err(ContextError::Refused(why)),
        }
        self.exchange.foreign |= head.origin != 0;
        self.exchange.untouchable |= head.context > 0 && (read.is_none() || !self.started);
        self.exchange.arrived_head |=
            head.context == self.head && read.is_some_and(|(_, length)| length > 0);
        let context = &mut self.contexts[usize::from(head.context)];
        if head.slot {
            context.slots += 1;
            self.slots += 1;
        }
        context.begun = true;
        context.ended |= head.end;
        if head.mark {
            self.awaiting = Some((Next::after(head), None));
        }
        Ok(())
    }

    /// Adds a record that is sent on, and that this middlebox may read, to the exchange.
    fn note(&mut self, head: Head, meta: &Meta, hash: &Digest, length: usize) {
        let exchange = &mut self.exchange;
        if self.wants_endorsements {
            exchange.digest = sha256(&[&exchange.digest, meta, hash]);
        }
        exchange.bytes += length;
        exchange.own_head |= head.origin == self.number && head.context == self.head;
    }

    fn check(&self, head: Head) -> Result<(), ContextError> {
        let Head { context: number, origin, .. } = head;
        let Some(context) = self.contexts.get(usize::from(number)) else {
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

    /// Opens the record in place if this middlebox may, and asks what to do with it. Returns the hash and length of what it read, too.
    fn inspect(
        &mut self,
        view: &View,
        whole: &mut [u8],
        inspector: &mut dyn Inspector,
    ) -> Result<(Action, Option<(Digest, usize)>), ContextError> {
        let Head { context: number, origin, end, .. } = view.head;
        let context = &mut self.contexts[usize::from(number)];
        let slots = context.slots;
        let pad = context.layout.pad;
        let Some(keys) = context.keys(&self.secrets, number, self.direction) else {
            return Ok((Action::Pass, None));
        };
        let opener = (&mut keys.open, keys.writer.is_some() || self.wants_endorsements);
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
        self.answering.is_some()
    }

    /// Whether an own answer may be sent now: nothing of another one has passed without its end.
    pub(crate) fn is_between_exchanges(&self) -> bool {
        self.awaiting.is_none() && self.contexts[1..].iter().all(|context| !context.begun)
    }

    /// Whether a record had a MARK, and its audits are not complete here.
    pub(crate) fn awaits_audit(&self) -> bool {
        self.awaiting.is_some()
    }

    /// The right in each context, from 1, as far as the keys reach.
    #[cfg(test)]
    pub(crate) fn rights_by_keys(&self) -> Vec<Right> {
        let of = |given: &ContextKeys| match given.write {
            Some(_) => Right::Write,
            None => Right::Read,
        };
        let right = |context: &Context| context.given.as_ref().map_or(Right::None, of);
        self.contexts[1..].iter().map(right).collect()
    }

    /// The number of the lowest request without an answer.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// Towards the server: a request by its number, unless the server has answered it.
    pub(crate) fn request(&self, number: u64) -> Option<&Request> {
        let first = self.exchanges - self.requests.len() as u64;
        self.requests.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// Towards the server: takes the oldest request, which the server has answered. None if this middlebox has emptied it: then the answer
    /// is to nothing.
    pub(crate) fn take_request(&mut self) -> Option<Digest> {
        let request = self.requests.pop_front()?;
        (!request.emptied).then_some(request.digest)
    }

    /// The server has started the session.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }
}

/// An exchange that has passed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The number of the request, from 0.
    pub(crate) number: u64,
    /// The server has proved that it gave this answer to the request that this middlebox sent on.
    pub(crate) endorsed: bool,
}
