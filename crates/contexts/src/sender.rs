//! The records that an endpoint sends: its messages in contexts, exchanges, and audits.

use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{self, Counters, Digests, Kind};
use super::path::{Path, Purpose, Right};
use super::record::{self, Cipher, Head, Layout, MAX_DATA, Position, SealKeys, Written};
use super::schedule::{Direction, EndpointKeys, HopSecrets, Secret, Tag, TagKey};

/// An audit comes at least every this many records, so that little waits for one at the receiver.
pub(crate) const AUDIT_EVERY: u32 = 16;

/// The first records of a session are short: a middlebox passes on whole records, and three of these fit into TCP's initial window
/// (RFC 6928), so that no round trip is spent on the rest of a long one. If they are full, an audit follows, which hands the first bytes up early.
const FIRST_RECORDS: u64 = 4;
/// The longest plaintext of the first records, in bytes.
const MAX_FIRST: usize = 4096;

/// First bytes of plaintexts in context 0: a message, or its last part.
pub(crate) const CONTROL_DATA: u8 = 0;
/// The end of all: with the number of slots of each context.
pub(crate) const CONTROL_FIN: u8 = 1;
/// The end because of an error.
pub(crate) const CONTROL_ERROR: u8 = 2;
/// A part of a message that has more.
pub(crate) const CONTROL_PART: u8 = 3;

/// The sending half of an endpoint.
pub(crate) struct Sender {
    direction: Direction,
    /// The context of an exchange without bytes.
    head: u8,
    contexts: Vec<Context>,
    slots: u64,
    digests: Digests,
    keys: Arc<EndpointKeys>,
    /// Derived with the first audit.
    audit_key: Option<Secret>,
    audits: u64,
    exchanges: u64,
    since_audit: u32,
    /// Bytes of the current exchange.
    exchange_bytes: usize,
    /// The record that is filled; it is sealed when it is known whether it is the last.
    open: Option<Open>,
    /// At a server, for each hop: the digest of what it may read of the current answer.
    answers: Vec<Digest>,
    finished: bool,
    out: Vec<u8>,
}

struct Context {
    layout: Layout,
    /// Derived with the first record.
    keys: Option<Keys>,
    slots: u64,
    /// This exchange has records in the context…
    begun: bool,
    /// …and the last one.
    ended: bool,
}

struct Keys {
    cipher: Cipher,
    writer: Option<TagKey>,
    endpoint: TagKey,
}

impl Keys {
    fn new(keys: &EndpointKeys, context: u8, direction: Direction) -> Self {
        let of_context = keys.context(context);
        Self {
            cipher: Cipher::new(of_context.record(context, direction), keys.aes),
            writer: of_context.writer(context, direction).as_ref().map(TagKey::new),
            endpoint: TagKey::new(&keys.secret.endpoint(context, direction, &keys.th2)),
        }
    }
}

struct Open {
    context: u8,
    data: Vec<u8>,
    end: bool,
}

impl Sender {
    pub(crate) fn new(keys: Arc<EndpointKeys>, direction: Direction) -> Self {
        let path = &keys.path;
        let count = u8::try_from(path.contexts.len()).unwrap_or(u8::MAX);
        let context = |number| Context {
            layout: Layout::new(path, number),
            keys: None,
            slots: 0,
            begun: false,
            ended: false,
        };
        let hops = match direction {
            Direction::ToServer => 0,
            Direction::ToClient => path.hops.len(),
        };
        Self {
            direction,
            head: head_context(path, direction),
            contexts: (0..=count).map(context).collect(),
            slots: 0,
            digests: Digests::new(path),
            audit_key: None,
            audits: 0,
            exchanges: 0,
            since_audit: 0,
            exchange_bytes: 0,
            open: None,
            answers: vec![Digest::default(); hops],
            finished: false,
            out: Vec::new(),
            keys,
        }
    }

    fn context(&mut self, context: u8) -> Result<&mut Context, ContextError> {
        if self.finished {
            return Err(ContextError::Closed);
        }
        let found = self.contexts.get_mut(usize::from(context)).filter(|_| context > 0);
        found.ok_or(ContextError::State("there is no such context"))
    }

    /// Appends data to the message of a context in the current exchange.
    pub(crate) fn write(&mut self, context: u8, mut data: &[u8]) -> Result<(), ContextError> {
        let state = self.context(context)?;
        if state.ended {
            return Err(ContextError::State("the message of this context has ended"));
        }
        let layout = state.layout;
        self.exchange_bytes += data.len();
        while !data.is_empty() {
            let capacity = self.capacity(layout);
            let full = |open: &Open| open.context != context || open.data.len() >= capacity;
            if self.open.as_ref().is_some_and(full) {
                self.seal_open(None)?;
                continue;
            }
            let open = self.open(context);
            let (now, later) = data.split_at(data.len().min(capacity - open.data.len()));
            open.data.extend_from_slice(now);
            data = later;
        }
        Ok(())
    }

    /// Begins the message of a context in the current exchange without data, so that the end of an earlier one need not wait for it.
    pub(crate) fn begin(&mut self, context: u8) -> Result<(), ContextError> {
        if self.context(context)?.begun {
            return Ok(());
        }
        self.seal_open(None)?;
        self.open(context);
        Ok(())
    }

    /// The most data of the next record.
    fn capacity(&self, layout: Layout) -> usize {
        if self.slots < FIRST_RECORDS { layout.capacity_of(MAX_FIRST) } else { layout.capacity() }
    }

    fn open(&mut self, context: u8) -> &mut Open {
        self.contexts[usize::from(context)].begun = true;
        self.open.get_or_insert_with(|| Open {
            context,
            data: Vec::with_capacity(MAX_DATA),
            end: false,
        })
    }

    /// Ends the message of a context in the current exchange.
    pub(crate) fn end(&mut self, context: u8) -> Result<(), ContextError> {
        let state = self.context(context)?;
        // A message without bytes needs no record.
        if std::mem::replace(&mut state.ended, true) || !state.begun {
            return Ok(());
        }
        if self.open.as_ref().is_some_and(|open| open.context != context) {
            self.seal_open(None)?;
        }
        self.open(context).end = true;
        Ok(())
    }

    /// Ends the exchange: every message that was begun, and with an audit. `request` is the digest of the request that a server
    /// answers, for each hop.
    pub(crate) fn finish(&mut self, request: &[Digest]) -> Result<(), ContextError> {
        let open = |context: &&u8| {
            let state = &self.contexts[usize::from(**context)];
            state.begun && !state.ended
        };
        let numbers: Vec<u8> = (1..=u8::MAX).take(self.contexts.len() - 1).collect();
        let unended: Vec<u8> = numbers.iter().filter(open).copied().collect();
        for context in unended {
            self.end(context)?;
        }
        if !self.contexts.iter().any(|context| context.begun) {
            self.open(self.head).end = true;
        }
        self.seal_open(Some(Kind::Exchange))?;
        self.put_audit(Kind::Exchange, request);
        for context in &mut self.contexts {
            (context.begun, context.ended) = (false, false);
        }
        self.exchanges += 1;
        self.exchange_bytes = 0;
        Ok(())
    }

    /// Seals what is open, with an audit, because nothing more is to be sent for now. The end of a message stays behind, so that the
    /// exchange can end with it.
    pub(crate) fn flush(&mut self) -> Result<(), ContextError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let end = std::mem::take(&mut open.end);
        if end && open.data.is_empty() {
            open.end = true;
            return Ok(());
        }
        let context = open.context;
        self.seal_open(Some(Kind::Part))?;
        if end {
            self.open(context).end = true;
        }
        Ok(())
    }

    /// Sends a message in context 0.
    pub(crate) fn control(&mut self, kind: u8, mut data: &[u8]) -> Result<(), ContextError> {
        if self.finished {
            return Err(ContextError::Closed);
        }
        self.flush()?;
        // The end of a message may be held back, so that the exchange can end with it.
        let held = self.open.take();
        loop {
            let (now, later) = data.split_at(data.len().min(MAX_DATA - 1));
            let last = later.is_empty();
            let open = self.open(0);
            open.data.push(if last { kind } else { CONTROL_PART });
            open.data.extend_from_slice(now);
            data = later;
            self.seal_open(last.then_some(Kind::Part))?;
            if last {
                self.contexts[0].begun = false;
                self.open = held;
                return Ok(());
            }
        }
    }

    /// Ends this direction with the number of slots of each context. Nothing can be sent after it.
    pub(crate) fn fin(&mut self) -> Result<(), ContextError> {
        if self.contexts[1..].iter().any(|context| context.begun) {
            return Err(ContextError::State("an exchange is open"));
        }
        let counts: Vec<u8> =
            self.contexts[1..].iter().flat_map(|context| context.slots.to_be_bytes()).collect();
        self.control(CONTROL_FIN, &counts)?;
        self.finished = true;
        Ok(())
    }

    fn seal_open(&mut self, mark: Option<Kind>) -> Result<(), ContextError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let layout = self.contexts[usize::from(open.context)].layout;
        let last_of_first =
            self.slots + 1 == FIRST_RECORDS && open.data.len() >= self.capacity(layout);
        let due = self.since_audit + 1 >= AUDIT_EVERY || last_of_first;
        let context = &mut self.contexts[usize::from(open.context)];
        let head = Head {
            context: open.context,
            slot: true,
            mark: mark.is_some() || due,
            end: open.end,
            origin: 0,
        };
        let place = Position { n: context.slots, g: self.slots, q: 0 };
        let derive = || Keys::new(&self.keys, open.context, self.direction);
        let Keys { cipher, writer, endpoint } = context.keys.get_or_insert_with(derive);
        let keys = SealKeys { cipher, writer: writer.as_ref(), third: Some(endpoint) };
        let written = record::seal(keys, (head, place, layout), &open.data, &mut self.out)?;
        context.slots += 1;
        self.slots += 1;
        self.since_audit += 1;
        self.note(open.context, &written);
        // An exchange's audit is written by `finish`, which has the endorsements.
        if head.mark && mark != Some(Kind::Exchange) {
            self.put_audit(Kind::Part, &[]);
        }
        Ok(())
    }

    fn note(&mut self, context: u8, written: &Written) {
        let tags = &self.out[written.tags.clone()];
        self.digests.add(context, &written.meta[..5], 0, tags);
        for (hop, answer) in (1..).zip(&mut self.answers) {
            if self.keys.path.right(context, hop) >= Right::Read {
                *answer = sha256(&[answer, &written.meta, &written.hash]);
            }
        }
    }

    fn put_audit(&mut self, kind: Kind, request: &[Digest]) {
        let counters =
            Counters { audits: self.audits, slots: self.slots, exchange: self.exchanges };
        let endorsements = match kind {
            Kind::Exchange => self.endorse(counters, request),
            _ => Vec::new(),
        };
        let digests = (&self.digests, &self.digests);
        let derive = || self.keys.secret.audit(self.direction, &self.keys.th2);
        let key = self.audit_key.get_or_insert_with(derive);
        audit::put(&mut self.out, (0, kind), digests, (key, counters), &endorsements);
        self.digests.reset();
        self.audits += 1;
        self.since_audit = 0;
    }

    fn endorse(&mut self, counters: Counters, request: &[Digest]) -> Vec<Tag> {
        let Self { answers, keys, .. } = self;
        let endorse = |(secrets, (answer, request)): (&HopSecrets, (&mut Digest, &Digest))| {
            let answer = std::mem::take(answer);
            let key = secrets.endorse(&keys.th2)?;
            Some(audit::endorsement(&key, counters, request, &answer))
        };
        // Only a server has answers to endorse, and it has every z.
        keys.hops.iter().zip(answers.iter_mut().zip(request)).filter_map(endorse).collect()
    }

    /// Whether an exchange has begun and not ended.
    pub(crate) fn is_within_exchange(&self) -> bool {
        self.contexts[1..].iter().any(|context| context.begun || context.ended)
    }

    /// Whether the current exchange has a byte.
    pub(crate) fn has_bytes(&self) -> bool {
        self.exchange_bytes > 0
    }

    /// How many bytes wait to be taken.
    pub(crate) fn pending(&self) -> usize {
        self.out.len()
    }

    /// Memory in bytes, about.
    pub(crate) fn memory(&self) -> usize {
        self.out.capacity()
    }

    /// Takes what was sealed; appends it to `out`.
    pub(crate) fn transmit(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.out);
        } else {
            out.append(&mut self.out);
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }
}

/// The context of an exchange without bytes: the head's, or the first.
pub(crate) fn head_context(path: &Path, direction: Direction) -> u8 {
    let purpose = match direction {
        Direction::ToServer => Purpose::RequestHead,
        Direction::ToClient => Purpose::ResponseHead,
    };
    path.context(purpose).unwrap_or(1)
}
