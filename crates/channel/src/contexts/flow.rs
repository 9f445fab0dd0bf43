//! The records of one direction at a middlebox.

mod audits;

use std::collections::VecDeque;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{Digests, Kind};
use super::hop::HopBound;
use super::inspector::{Action, AnswerPart, Inspector, Piece};
use super::path::{Path, Right};
use super::receiver::{MAX_INSERTED, Next};
use super::record::{self, Cipher, Head, Layout, Meta, Position, SealKeys, View};
use super::schedule::{ContextKeys, Direction, HopSecrets, Secret, TagKey};
use super::sender::head_context;

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
    /// By origin: the least counter of its next record, and records that it inserted since the last audit.
    others: Vec<(u64, u32)>,
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
/// Records of an own answer between two audits.
const PIECE: usize = 16;

struct Context {
    layout: Layout,
    slots: u64,
    /// None without the right to read.
    given: Option<ContextKeys>,
    /// Derived from `given` with the first record.
    keys: Option<Keys>,
    /// The current exchange has records here…
    begun: bool,
    /// …and the last one.
    ended: bool,
}

struct Keys {
    /// For opening and, with a state of its own, for sealing.
    open: Cipher,
    seal: Cipher,
    /// With the right to write.
    writer: Option<TagKey>,
    author: Option<TagKey>,
}

impl Context {
    /// The keys; None without the right to read.
    fn keys(&mut self, secrets: &Secrets, number: u8, direction: Direction) -> Option<&mut Keys> {
        let given = self.given.as_ref()?;
        let derive = || {
            let secret = given.record(number, direction);
            let author = secrets.hop.author(number, direction, &secrets.th2);
            Keys {
                open: Cipher::new(secret.clone(), secrets.aes),
                seal: Cipher::new(secret, secrets.aes),
                writer: given.writer(number, direction).as_ref().map(TagKey::new),
                author: author.filter(|_| given.write.is_some()).as_ref().map(TagKey::new),
            }
        };
        Some(self.keys.get_or_insert_with(derive))
    }
}

/// What keys are derived from, besides those of contexts.
struct Secrets {
    hop: HopSecrets,
    th2: Digest,
    aes: bool,
}

impl Flow {
    pub(crate) fn new(
        bound: &HopBound,
        keys: &[Option<ContextKeys>],
        direction: Direction,
        wants_endorsements: bool,
    ) -> Result<Self, ContextError> {
        let HopBound { path, number, secrets, th2, aes, .. } = bound;
        let missing = crate::Error::Internal("a secret of this middlebox is missing");
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
            others: vec![(0, 0); path.hops.len() + 1],
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
        self.count(&view)?;
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

    /// The own counter of a middlebox only grows, and it inserts no more than it may between two audits.
    fn count(&mut self, view: &View) -> Result<(), ContextError> {
        let Head { origin, slot, .. } = view.head;
        let Some(counted) = self.others.get_mut(usize::from(origin)).filter(|_| origin > 0) else {
            return Ok(());
        };
        if view.q < counted.0 {
            return Err(ContextError::forged_by("a record with an old counter", origin));
        }
        counted.0 = view.q.saturating_add(1);
        counted.1 += u32::from(!slot);
        if counted.1 > MAX_INSERTED { Err(ContextError::Flood("inserted records")) } else { Ok(()) }
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
        let (slots, pad) = (context.slots, context.layout.pad);
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

    /// Seals `data` in the place of a record. What outgrows it goes before it, in records without a slot, so that END and MARK stay where
    /// they are.
    fn put(&mut self, head: Head, data: &[u8], out: &mut Vec<u8>) -> Result<(), ContextError> {
        let context = &mut self.contexts[usize::from(head.context)];
        let what = "write a record";
        let denied = ContextError::NoRight { hop: self.number, context: head.context, what };
        let (layout, slots) = (context.layout, context.slots);
        let keys = context.keys(&self.secrets, head.context, self.direction);
        let Some(keys) = keys else { return Err(denied) };
        if keys.author.is_none() {
            return Err(denied);
        }
        let capacity = layout.capacity();
        let pieces = data.chunks(capacity).collect::<Vec<_>>();
        let (last, before) =
            pieces.split_last().map_or((&[][..], &[][..]), |(last, all)| (*last, all));
        let inserted = Head { slot: false, mark: false, end: false, origin: self.number, ..head };
        let own = Head { origin: self.number, ..head };
        let mut noted = Vec::new();
        let all = before.iter().map(|piece| (inserted, *piece)).chain([(own, last)]);
        for (head, piece) in all {
            self.inserted += u32::from(!head.slot);
            if self.inserted > MAX_INSERTED {
                return Err(ContextError::Flood("inserted records"));
            }
            let place = Position { n: slots, g: self.slots, q: self.own };
            let seal = SealKeys {
                cipher: &mut keys.seal,
                writer: keys.writer.as_ref(),
                third: keys.author.as_ref(),
            };
            let written = record::seal(seal, (head, place, layout), piece, out)?;
            let tags = &out[written.tags];
            self.digests.1.add(head.context, &written.meta[..5], self.own, tags);
            self.own += 1;
            noted.push((head, written.meta, written.hash, piece.len()));
        }
        for (head, meta, hash, length) in noted {
            if self.direction == Direction::ToServer {
                self.note(head, &meta, &hash, length);
            }
        }
        Ok(())
    }

    /// Sends a part of an own answer to the lowest request without one. Whatever comes from behind is behind it, too.
    pub(crate) fn answer(
        &mut self,
        part: &AnswerPart,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let layout = self.contexts.get(usize::from(part.context)).map(|context| context.layout);
        let layout = layout.ok_or(ContextError::State("there is no such context"))?;
        let mut pieces = part.data.chunks(layout.capacity()).peekable();
        if part.last && pieces.peek().is_none() {
            return Err(ContextError::State("an answer whose last part is empty"));
        }
        let mut since_mark = self.answering.unwrap_or(0);
        while let Some(piece) = pieces.next() {
            let last = part.last && pieces.peek().is_none();
            since_mark += 1;
            let mark = last || since_mark == PIECE;
            let (context, origin) = (part.context, self.number);
            let head = Head { context, slot: false, mark, end: false, origin };
            self.put(head, piece, out)?;
            if mark {
                self.put_audit(if last { Kind::OwnAnswer } else { Kind::OwnPart }, out);
                since_mark = 0;
            }
        }
        self.answering = Some(since_mark);
        if part.last {
            self.answering = None;
            self.exchange = Exchange::default();
            self.answered += 1;
        }
        Ok(())
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
