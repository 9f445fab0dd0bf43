//! The records that an endpoint receives. Nothing is handed up before an audit has shown that it is complete.

mod audits;
mod keys;
mod received;
mod shape;

use std::collections::VecDeque;
use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{Audit, Digests, Next};
use super::counter::{MAX_INSERTED, OriginCounter};
use super::path::{Path, Right};
use super::record::{Head, Layout, MAX_PLAIN, View};
use super::schedule::{Direction, EndpointKeys, Secret};
use super::sender::{
    AUDIT_EVERY, CONTROL_DATA, CONTROL_ERROR, CONTROL_FIN, CONTROL_PART, head_context,
};
use keys::Keys;
pub use received::Received;
use shape::Shape;

/// What a record in memory takes besides its data, about.
pub(crate) const PIECE_MEMORY: usize = 64;
/// What the keys of a context take in memory, and those of each middlebox that has written in it, about.
const KEYS_MEMORY: usize = 2 << 10;
/// What may wait for an audit: of the endpoint, and of each middlebox that may insert.
const MAX_WAITING: usize = AUDIT_EVERY as usize * (MAX_PLAIN + PIECE_MEMORY);
/// See [`MAX_WAITING`].
const MAX_WAITING_INSERTED: usize = MAX_INSERTED as usize * (MAX_PLAIN + PIECE_MEMORY);
/// The longest message in context 0, in bytes: an operation, and some more.
const MAX_CONTROL: usize = 320 << 10;

/// The receiving half of an endpoint.
pub(crate) struct Receiver {
    direction: Direction,
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
    /// The records of the current exchange.
    shape: Shape,
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
#[derive(Default)]
struct Party {
    /// Derived with its first audit.
    audit: Option<Secret>,
    audits: u64,
    counter: OriginCounter,
}

impl Receiver {
    pub(crate) fn new(keys: Arc<EndpointKeys>, direction: Direction) -> Self {
        let path = &keys.path;
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let writes =
            |hop: &u8| (1..=count).any(|context| path.right(context, *hop) == Right::Write);
        let writers = (1..).take(path.hops.len()).filter(writes).count();
        Self {
            direction,
            head: head_context(path, direction),
            contexts: (0..=count).map(|number| Context::new(path, number)).collect(),
            slots: 0,
            digests: Digests::new(path),
            parties: (0..=path.hops.len()).map(|_| Party::default()).collect(),
            exchanges: 0,
            control: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            most_waiting: MAX_WAITING + writers * MAX_WAITING_INSERTED,
            audits: None,
            requests: vec![Digest::default(); keys.hops.len()],
            answered: 0,
            answered_by_others: VecDeque::new(),
            has_slot: false,
            author: None,
            shape: Shape::None,
            exchange_bytes: 0,
            replaced_head: false,
            finished: false,
            keys,
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
        self.parties[usize::from(head.origin)].counter.count(&view)?;
        let derive = || Keys::new(&self.keys, head.context, self.direction);
        let keys = context.keys.get_or_insert_with(derive);
        let opener = (&mut keys.cipher, view.has_tags());
        let (data, hash) = view.open(opener, context.slots, context.layout.pad, whole)?;
        // A context without tags has no reader besides the endpoints.
        let hash = hash.unwrap_or_default();
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
        self.shape.add(head);
        for (hop, request) in (1..).zip(&mut self.requests) {
            if self.keys.path.right(head.context, hop) >= Right::Read {
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
        if origin != 0 && self.keys.path.right(number, origin) != Right::Write {
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

    /// Whether an audit is expected.
    pub(crate) fn awaits_audit(&self) -> bool {
        self.audits.is_some()
    }

    /// Bytes that wait for an audit, about.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Memory in bytes, about.
    pub(crate) fn memory(&self) -> usize {
        let keys = self.contexts.iter().filter_map(|context| context.keys.as_ref());
        let sets: usize = keys.map(Keys::sets).sum();
        self.waiting_bytes + self.control.capacity() + sets * KEYS_MEMORY
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
    ContextError::Tls(levada_channel::Error::Internal("a secret of a middlebox is missing"));
const TWO_ANSWERS: ContextError = ContextError::Unexpected("two answers to one request");

impl Context {
    fn new(path: &Path, number: u8) -> Self {
        let layout = Layout::new(path, number);
        Self { layout, keys: None, slots: 0, begun: false, ended: false }
    }
}
