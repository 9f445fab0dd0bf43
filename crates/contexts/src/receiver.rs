//! The records that an endpoint receives. Nothing is handed up before an audit has shown that it is
//! complete.

mod audits;
mod exchange;
mod keys;
mod received;
mod shape;
mod waiting;

use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{Audit, Digests, Next};
use super::contexts::Contexts;
use super::counter::OriginCounter;
use super::path::Right;
use super::record::{Head, View};
use super::schedule::{Direction, EndpointKeys, Secret};
use super::sender::{CONTROL_DATA, CONTROL_ERROR, CONTROL_FIN, CONTROL_PART, head_context};
use exchange::{Exchange, Exchanges};
use keys::Keys;
pub use received::Received;
pub(crate) use waiting::PIECE_MEMORY;
use waiting::Waiting;

/// What the keys of a context take in memory, and those of each middlebox that has written in it,
/// about.
const KEYS_MEMORY: usize = 2 << 10;
/// The longest message in context 0, in bytes: an operation, and some more.
const MAX_CONTROL: usize = 320 << 10;

/// The receiving half of an endpoint.
pub(crate) struct Receiver {
    direction: Direction,
    /// The context of the head of a request or an answer.
    head: u8,
    /// Keys are derived with the first record.
    contexts: Contexts<Option<Keys>>,
    digests: Digests,
    /// By party, the endpoint first.
    parties: Vec<Party>,
    keys: Arc<EndpointKeys>,
    /// The part of a message in context 0 that has arrived.
    control: Vec<u8>,
    waiting: Waiting,
    /// The audits since a MARK; None if records are expected.
    audits: Option<Audits>,
    /// At a server: the digest of the request, for each hop.
    requests: Vec<Digest>,
    exchange: Exchange,
    exchanges: Exchanges,
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
            contexts: Contexts::new(path, |_| None),
            digests: Digests::new(path),
            parties: (0..=path.hops.len()).map(|_| Party::default()).collect(),
            control: Vec::new(),
            waiting: Waiting::new(writers),
            audits: None,
            requests: vec![Digest::default(); keys.hops.len()],
            exchange: Exchange::default(),
            exchanges: Exchanges::default(),
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
        if self.exchange.author.is_some() && head.slot && head.context > 0 {
            return Err(ContextError::Unexpected("a record within an answer of a middlebox"));
        }
        let all = self.contexts.slots;
        let context = &mut self.contexts[head.context];
        let view = View::new(whole, context.layout, context.slots, all)?;
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
        self.contexts.add(head);
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
        let Some(context) = self.contexts.get(number) else {
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
            self.exchange.add(head, data.len(), self.head);
            Received::Data { context, data: data.to_vec(), origin, end }
        };
        self.waiting.push(received, data.len())
    }

    fn receive_fin(&mut self, head: Head, counts: &[u8]) -> Result<Received, ContextError> {
        let open = self.contexts.is_begun() || self.exchanges.by_others() > 0;
        self.control.clear();
        if !head.mark || open || !self.contexts.slot_counts().eq(counts.iter().copied()) {
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
        self.waiting.bytes()
    }

    /// Memory in bytes, about.
    pub(crate) fn memory(&self) -> usize {
        let keys = self.contexts.iter().filter_map(|context| context.keys.as_ref());
        let sets: usize = keys.map(Keys::sets).sum();
        self.waiting.bytes() + self.control.capacity() + sets * KEYS_MEMORY
    }

    /// At a client: the requests that middleboxes have answered, and the server not yet.
    pub(crate) fn answered_by_others(&self) -> usize {
        self.exchanges.by_others()
    }

    /// Whether everything has arrived, with its audit.
    pub(crate) fn is_complete(&self) -> bool {
        self.finished && self.audits.is_none()
    }
}

const NO_SECRET: ContextError =
    ContextError::Tls(levada_channel::Error::Internal("a secret of a middlebox is missing"));
