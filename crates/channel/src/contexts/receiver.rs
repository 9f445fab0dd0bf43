//! The records that an endpoint receives. Nothing is handed up before an audit has shown that it is complete.

use std::collections::VecDeque;
use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{self, Audit, Counters, Digests, Kind};
use super::path::{Path, Purpose, Right};
use super::record::{Cipher, Head, Layout, MAX_PLAIN, View};
use super::schedule::{Direction, EndpointKeys, Secret, TagKey};
use super::sender::{
    AUDIT_EVERY, CONTROL_DATA, CONTROL_ERROR, CONTROL_FIN, CONTROL_PART, head_context,
};

/// What a record in memory takes besides its data, about.
pub(crate) const PIECE_MEMORY: usize = 64;
/// Records that each middlebox may insert between two audits.
pub(crate) const MAX_INSERTED: u32 = 64;
/// What may wait for an audit: of the endpoint, and of each middlebox that may insert.
const MAX_WAITING: usize = AUDIT_EVERY as usize * (MAX_PLAIN + PIECE_MEMORY);
/// See [`MAX_WAITING`].
const MAX_WAITING_INSERTED: usize = MAX_INSERTED as usize * (MAX_PLAIN + PIECE_MEMORY);
/// The longest message in context 0, in bytes: an operation, and some more.
const MAX_CONTROL: usize = 320 << 10;

/// What was received and audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A part of the message of a context.
    Data {
        /// The context, from 1.
        context: u8,
        /// The bytes; may be empty.
        data: Vec<u8>,
        /// Who wrote them last: 0 the sending endpoint, otherwise the number of a middlebox.
        origin: u8,
        /// The message ends with them.
        end: bool,
    },
    /// The exchange has ended, and with it every message of it: one whole request, or its answer.
    Exchange {
        /// The middlebox that answers in place of the server; 0 the other endpoint.
        by: u8,
    },
    /// A message of the other endpoint in context 0.
    Control(Vec<u8>),
    /// The other endpoint ends the session because of an error.
    Error(Vec<u8>),
    /// The other endpoint has sent everything.
    Finished,
}

/// The receiving half of an endpoint.
pub(crate) struct Receiver {
    direction: Direction,
    path: Path,
    /// The context of the head of a request or an answer.
    head: u8,
    contexts: Vec<Context>,
    slots: u64,
    digests: Digests,
    /// By party, the endpoint first.
    parties: Vec<Party>,
    keys: Arc<EndpointKeys>,
    exchanges: u64,
    /// The part of a message in context 0 that has arrived.
    control: Vec<u8>,
    /// Since the last audit.
    waiting: VecDeque<Received>,
    waiting_bytes: usize,
    most_waiting: usize,
    /// The audits since a MARK; None if records are expected.
    audits: Option<Audits>,
    /// At a server: the digest of the request, for each hop.
    requests: Vec<Digest>,
    /// At a client: how many requests have an answer, and those that a middlebox has answered, until the server's empty one comes.
    answered: u64,
    answered_by_others: VecDeque<u64>,
    /// The current exchange has a record of the endpoint, or what took its place.
    has_slot: bool,
    /// The middlebox whose own answer has begun.
    author: Option<u8>,
    /// Bytes of the current exchange, and whether a middlebox has replaced its head.
    exchange_bytes: usize,
    replaced_head: bool,
    finished: bool,
}

/// The audits after a MARK: of the party that set it, and of all between it and this side.
struct Audits {
    all: Vec<Audit>,
    next: Next,
}

/// Whose audit is next.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Party(u8),
    /// The author of an own answer: the last writer of its record, or a middlebox behind that one.
    AuthorFrom(u8),
}

impl Next {
    /// After a record with a MARK.
    pub(crate) fn after(head: Head) -> Self {
        if head.slot { Self::Party(0) } else { Self::AuthorFrom(head.origin) }
    }

    /// Whether the first audit, or a later one, may be of this party and kind.
    pub(crate) fn fits(self, hop: u8, kind: Kind) -> bool {
        match self {
            Self::Party(next) => hop == next,
            Self::AuthorFrom(least) => hop >= least && kind.is_own(),
        }
    }
}

/// A request as a server received it.
pub(crate) struct Request {
    /// Its digest, for each hop.
    pub(crate) digests: Vec<Digest>,
    /// A middlebox has emptied it and answers in place of the server, which answers without bytes.
    pub(crate) emptied: bool,
}

struct Context {
    layout: Layout,
    /// Derived with the first record.
    keys: Option<Keys>,
    slots: u64,
    begun: bool,
    ended: bool,
}

/// The other endpoint, or a middlebox.
struct Party {
    /// Derived with its first audit.
    audit: Option<Secret>,
    audits: u64,
    /// The counter that its next record must reach.
    next: u64,
    /// Records that it inserted since the last audit.
    inserted: u32,
    /// The contexts that it may read.
    reads: Vec<bool>,
}

impl Receiver {
    pub(crate) fn new(path: &Path, keys: Arc<EndpointKeys>, direction: Direction) -> Self {
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let parties = (0..).take(path.hops.len() + 1).map(|party| Party::new(path, party));
        let writes =
            |hop: &&u8| (1..=count).any(|context| path.right(context, **hop) == Right::Write);
        let hops: Vec<u8> = (1..).take(path.hops.len()).collect();
        let writers = hops.iter().filter(writes).count();
        Self {
            direction,
            head: head_context(path, direction),
            path: path.clone(),
            contexts: (0..=count).map(|number| Context::new(path, number)).collect(),
            slots: 0,
            digests: Digests::new(path),
            parties: parties.collect(),
            keys,
            exchanges: 0,
            control: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            most_waiting: MAX_WAITING + writers * MAX_WAITING_INSERTED,
            audits: None,
            requests: vec![Digest::default(); path.hops.len()],
            answered: 0,
            answered_by_others: VecDeque::new(),
            has_slot: false,
            author: None,
            exchange_bytes: 0,
            replaced_head: false,
            finished: false,
        }
    }

    /// Takes a whole record, decrypted in place.
    pub(crate) fn receive_record(&mut self, whole: &mut [u8]) -> Result<(), ContextError> {
        if self.audits.is_some() || self.finished {
            return Err(ContextError::Unexpected("a record where an audit belongs"));
        }
        let head = Head::of(whole)?;
        self.check(head)?;
        if self.author.is_some() && head.slot && head.context > 0 {
            return Err(ContextError::Unexpected("a record within an answer of a middlebox"));
        }
        let context = &mut self.contexts[usize::from(head.context)];
        let view = View::new(whole, context.layout, context.slots, self.slots)?;
        self.parties[usize::from(head.origin)].count(&view)?;
        let derive = || Keys::new(&self.keys, head.context, self.direction);
        let keys = context.keys.get_or_insert_with(derive);
        let (data, hash) = view.open(&mut keys.cipher, context.slots, context.layout.pad, whole)?;
        let third = keys.third(&self.keys, head, self.direction);
        keys.verify(&view, whole, &hash, third.as_ref())?;
        self.digests.add_view(&view, whole);
        if head.slot {
            context.slots += 1;
            self.slots += 1;
            self.has_slot |= head.context > 0;
        }
        context.begun = true;
        context.ended |= head.end;
        for (request, party) in self.requests.iter_mut().zip(&self.parties[1..]) {
            if party.reads[usize::from(head.context)] {
                *request = sha256(&[request, &view.meta, &hash]);
            }
        }
        self.wait_for_audit(head, &whole[data])?;
        if head.mark {
            self.audits = Some(Audits { all: Vec::new(), next: Next::after(head) });
        }
        Ok(())
    }

    /// Whether a record may be here.
    fn check(&self, head: Head) -> Result<(), ContextError> {
        let Head { context: number, origin, .. } = head;
        let Some(context) = self.contexts.get(usize::from(number)) else {
            return Err(ContextError::Malformed("a record of an unknown context"));
        };
        if usize::from(origin) >= self.parties.len() {
            return Err(ContextError::Malformed("a record of an unknown middlebox"));
        }
        if origin != 0 && self.path.right(number, origin) != Right::Write {
            let what = "write a record";
            return Err(ContextError::NoRight { hop: origin, context: number, what });
        }
        if context.ended && number > 0 {
            return Err(ContextError::Unexpected("a record after the end of its message"));
        }
        if number == 0 && head.end || !head.slot && (head.end || origin == 0) {
            return Err(ContextError::Malformed("the flags of a record"));
        }
        Ok(())
    }

    fn wait_for_audit(&mut self, head: Head, data: &[u8]) -> Result<(), ContextError> {
        let received = if head.context == 0 {
            let (kind, rest) =
                data.split_first().ok_or(ContextError::Malformed("an empty control record"))?;
            self.control.extend_from_slice(rest);
            if self.control.len() > MAX_CONTROL {
                return Err(ContextError::Flood("a long message in context 0"));
            }
            match *kind {
                CONTROL_PART => return Ok(()),
                CONTROL_DATA => Received::Control(std::mem::take(&mut self.control)),
                CONTROL_ERROR => Received::Error(std::mem::take(&mut self.control)),
                CONTROL_FIN => self.receive_fin(head, rest)?,
                _ => return Err(ContextError::Malformed("a control record")),
            }
        } else {
            let Head { context, origin, end, .. } = head;
            self.exchange_bytes += data.len();
            self.replaced_head |= origin != 0 && self.head == context;
            Received::Data { context, data: data.to_vec(), origin, end }
        };
        self.waiting_bytes += data.len() + PIECE_MEMORY;
        if self.waiting_bytes > self.most_waiting {
            return Err(ContextError::Flood("records without an audit"));
        }
        self.waiting.push_back(received);
        Ok(())
    }

    fn receive_fin(&mut self, head: Head, counts: &[u8]) -> Result<Received, ContextError> {
        let expected = self.contexts[1..].iter().flat_map(|context| context.slots.to_be_bytes());
        let open = self.contexts[1..].iter().any(|context| context.begun)
            || !self.answered_by_others.is_empty();
        self.control.clear();
        if !head.mark || open || !expected.eq(counts.iter().copied()) {
            return Err(ContextError::Truncated("the last record does not fit what arrived"));
        }
        self.finished = true;
        Ok(Received::Finished)
    }

    /// Takes the body of an AUDIT. After the last one, what it covers is appended to `out`. Returns a request that has ended.
    pub(crate) fn receive_audit(
        &mut self,
        body: &[u8],
        out: &mut VecDeque<Received>,
    ) -> Result<Option<Request>, ContextError> {
        let hops = u8::try_from(self.path.hops.len()).unwrap_or(u8::MAX);
        let audit = Audit::take(body, self.direction, hops.into())?;
        let (hop, kind) = (audit.hop, audit.kind);
        let Some(audits) = &mut self.audits else {
            return Err(ContextError::Unexpected("an audit without a mark"));
        };
        let first = audits.all.first();
        let same = first.map_or((hop == 0) != kind.is_own(), |first| first.kind == kind);
        if hop > hops || !audits.next.fits(hop, kind) || !same {
            return Err(ContextError::Unexpected("an audit of another party or kind"));
        }
        let party = &mut self.parties[usize::from(hop)];
        let exchange = if kind.is_own() { self.answered } else { self.exchanges };
        let counters = Counters { audits: party.audits, slots: self.slots, exchange };
        if party.audit.is_none() {
            party.audit = self.keys.audit(hop, self.direction);
        }
        let key = party.audit.as_ref().ok_or(NO_SECRET)?;
        audit.verify(key, counters)?;
        party.audits += 1;
        party.inserted = 0;
        audits.all.push(audit);
        let (last, next) = match (self.direction, hop) {
            (Direction::ToServer, hop) => (hop == hops, hop + 1),
            (Direction::ToClient, 0) => (false, hops),
            (Direction::ToClient, hop) => (hop == 1, hop.wrapping_sub(1)),
        };
        audits.next = Next::Party(next);
        if !last {
            return Ok(None);
        }
        audit::walk(&self.path, &self.digests, &audits.all)?;
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
        let pending_emptied =
            self.exchange_bytes == 0 && self.contexts[1..].iter().any(|one| one.begun);
        if self.direction == Direction::ToServer && pending_emptied {
            self.hand_up_control(out);
            return Ok(None);
        }
        if self.answered_by_others.front() == Some(&self.exchanges) && self.exchange_bytes > 0 {
            return Err(TWO_ANSWERS);
        }
        self.waiting_bytes = 0;
        out.append(&mut self.waiting);
        Ok(None)
    }

    /// The answer of a middlebox, or a part of it: the author must be allowed to write everything that an answer consists of, and nothing of another
    /// party behind it may be in it.
    fn end_own(
        &mut self,
        kind: Kind,
        author: u8,
        out: &mut VecDeque<Received>,
    ) -> Result<(), ContextError> {
        if self.has_slot || self.author.is_some_and(|begun| begun != author) {
            return Err(ContextError::Unexpected("an answer of a middlebox within another one"));
        }
        let heads = [Purpose::RequestHead, Purpose::ResponseHead];
        let complete = heads.iter().all(|purpose| self.path.context(*purpose).is_some());
        let named = |context: &&super::path::Context| {
            let purpose = context.purpose as u8;
            (Purpose::RequestHead as u8..=Purpose::ResponseBody as u8).contains(&purpose)
        };
        let at = usize::from(author) - 1;
        let contexts = self.path.contexts.iter().filter(named);
        let mut rights = contexts.map(|context| context.rights[at]);
        if !complete || rights.any(|right| right != Right::Write) {
            let what = "answer a request";
            return Err(ContextError::NoRight { hop: author, context: 1, what });
        }
        let foreign = |received: &Received| matches!(received, Received::Data { origin, .. } if *origin == 0 || *origin > author);
        if self.waiting.iter().any(foreign) {
            return Err(ContextError::Unexpected("an answer of a middlebox among other records"));
        }
        // What stands in context 0 waits for an audit of the endpoint.
        let (data, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|one| matches!(one, Received::Data { .. }));
        out.extend(data);
        self.waiting = rest;
        self.waiting_bytes = 0;
        self.author = Some(author);
        if kind == Kind::OwnPart {
            return Ok(());
        }
        self.end_messages();
        (self.exchange_bytes, self.replaced_head) = (0, false);
        self.answered_by_others.push_back(self.answered);
        self.answered += 1;
        out.push_back(Received::Exchange { by: author });
        Ok(())
    }

    fn end_exchange(
        &mut self,
        out: &mut VecDeque<Received>,
    ) -> Result<Option<Request>, ContextError> {
        let contexts = &self.contexts[1..];
        if contexts.iter().any(|context| context.begun && !context.ended) {
            return Err(ContextError::Truncated("an exchange with a message that has no end"));
        }
        if !contexts.iter().any(|context| context.begun) {
            return Err(ContextError::Malformed("an exchange without a record"));
        }
        self.end_messages();
        let number = self.exchanges;
        self.exchanges += 1;
        let empty = std::mem::take(&mut self.exchange_bytes) == 0;
        let replaced = std::mem::take(&mut self.replaced_head);
        if self.direction == Direction::ToServer {
            let none = vec![Digest::default(); self.requests.len()];
            let digests = std::mem::replace(&mut self.requests, none);
            let emptied = empty && replaced;
            self.hand_up(!emptied, out);
            return Ok(Some(Request { digests, emptied }));
        }
        let replaced = self.answered_by_others.front() == Some(&number);
        match (replaced, empty) {
            (true, false) => Err(TWO_ANSWERS),
            (false, true) => Err(ContextError::Truncated("a request that was emptied on the way")),
            (true, true) => {
                self.answered_by_others.pop_front();
                self.hand_up(false, out);
                Ok(None)
            }
            (false, false) => {
                self.answered += 1;
                self.hand_up(true, out);
                Ok(None)
            }
        }
    }

    fn hand_up(&mut self, wanted: bool, out: &mut VecDeque<Received>) {
        self.waiting_bytes = 0;
        if wanted {
            out.append(&mut self.waiting);
            out.push_back(Received::Exchange { by: 0 });
        } else {
            self.hand_up_control(out);
            self.waiting.clear();
        }
    }

    /// Hands up what stands in context 0, and keeps the data that waits.
    fn hand_up_control(&mut self, out: &mut VecDeque<Received>) {
        let (data, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|one| matches!(one, Received::Data { .. }));
        out.extend(rest);
        self.waiting = data;
    }

    fn end_messages(&mut self) {
        self.has_slot = false;
        self.author = None;
        for context in &mut self.contexts {
            (context.begun, context.ended) = (false, false);
        }
    }

    /// Whether an audit is expected.
    pub(crate) fn awaits_audit(&self) -> bool {
        self.audits.is_some()
    }

    /// Bytes that wait for an audit, about.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// At a client: the requests that middleboxes have answered, and the server not yet.
    pub(crate) fn answered_by_others(&self) -> usize {
        self.answered_by_others.len()
    }

    /// Whether everything has arrived, with its audit.
    pub(crate) fn is_complete(&self) -> bool {
        self.finished && self.audits.is_none()
    }
}

const NO_SECRET: ContextError =
    ContextError::Tls(crate::Error::Internal("a secret of a middlebox is missing"));
const TWO_ANSWERS: ContextError = ContextError::Unexpected("two answers to one request");

impl Context {
    fn new(path: &Path, number: u8) -> Self {
        let layout = Layout::new(path, number);
        Self { layout, keys: None, slots: 0, begun: false, ended: false }
    }
}

/// The keys of a context.
struct Keys {
    cipher: Cipher,
    writer: Option<TagKey>,
    endpoint: Arc<TagKey>,
    /// By hop, from 0; those that have written something.
    authors: Vec<Option<Arc<TagKey>>>,
}

impl Keys {
    fn new(keys: &EndpointKeys, context: u8, direction: Direction) -> Self {
        let of_context = keys.context(context);
        let endpoint = keys.secret.endpoint(context, direction, &keys.th2);
        Self {
            cipher: Cipher::new(of_context.record(context, direction), keys.aes),
            writer: of_context.writer(context, direction).as_ref().map(TagKey::new),
            endpoint: Arc::new(TagKey::new(&endpoint)),
            authors: vec![None; keys.hops.len() + 1],
        }
    }

    /// The key of the endpoint, or of the middlebox that wrote the record last.
    fn third(
        &mut self,
        keys: &EndpointKeys,
        head: Head,
        direction: Direction,
    ) -> Option<Arc<TagKey>> {
        if head.origin == 0 {
            return Some(self.endpoint.clone());
        }
        let slot = self.authors.get_mut(usize::from(head.origin))?;
        if slot.is_none() {
            let secret = keys.hop(head.origin)?.author(head.context, direction, &keys.th2)?;
            *slot = Some(Arc::new(TagKey::new(&secret)));
        }
        slot.clone()
    }

    /// The writer tag, and the third.
    fn verify(
        &self,
        view: &View,
        whole: &[u8],
        hash: &Digest,
        third: Option<&Arc<TagKey>>,
    ) -> Result<(), ContextError> {
        let Head { context, origin, .. } = view.head;
        let forged =
            |what| ContextError::Forged { what, hop: Some(origin), context: Some(context) };
        let message = view.tagged(hash);
        if let Some(tag) = view.writer_tag(whole)
            && !self.writer.as_ref().is_some_and(|key| key.verify(&message, tag))
        {
            return Err(forged("a record, by a party that may not write"));
        }
        if let Some(tag) = view.third_tag(whole)
            && !third.is_some_and(|key| key.verify(&message, tag))
        {
            return Err(forged("a record, by another writer"));
        }
        Ok(())
    }
}

impl Party {
    fn new(path: &Path, hop: u8) -> Self {
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let reads = (0..=count).map(|context| path.right(context, hop) >= Right::Read);
        Self { audit: None, audits: 0, next: 0, inserted: 0, reads: reads.collect() }
    }

    /// The own counter of a middlebox only grows.
    fn count(&mut self, view: &View) -> Result<(), ContextError> {
        if view.head.origin == 0 {
            return Ok(());
        }
        if view.q < self.next {
            return Err(ContextError::forged_by("a record with an old counter", view.head.origin));
        }
        self.next = view.q.saturating_add(1);
        self.inserted += u32::from(!view.head.slot);
        if self.inserted > MAX_INSERTED {
            return Err(ContextError::Flood("inserted records"));
        }
        Ok(())
    }
}
