//! The records that an endpoint sends: its messages in contexts, exchanges, and audits.

mod audits;
mod keys;

use std::sync::Arc;

use levada_core::{Digest, sha256};

use super::ContextError;
use super::audit::{self, Counters, Kind};
use super::contexts::{Context, Contexts};
use super::path::{Path, Purpose, Right};
use super::record::{self, Head, Layout, MAX_DATA, Position, Written};
use super::schedule::{Direction, EndpointKeys, HopSecrets, Tag};
use audits::Audits;
use keys::Keys;

/// The first records of a session are short: a middlebox passes on whole records, and three of
/// these fit into TCP's initial window (RFC 6928), so that no round trip is spent on the rest of a
/// long one. If they are full, an audit follows, which hands the first bytes up early.
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
    /// Keys are derived with the first record.
    contexts: Contexts<Option<Keys>>,
    keys: Arc<EndpointKeys>,
    audits: Audits,
    exchanges: u64,
    /// Bytes of the current exchange.
    exchange_bytes: usize,
    /// The record that is filled; it is sealed when it is known whether it is the last.
    open: Option<Open>,
    /// At a server, for each hop: the digest of what it may read of the current answer.
    answers: Vec<Digest>,
    finished: bool,
    out: Vec<u8>,
}

/// A record that is filled.
struct Open {
    context: u8,
    data: Vec<u8>,
    end: bool,
}

impl Sender {
    pub(crate) fn new(keys: Arc<EndpointKeys>, direction: Direction) -> Self {
        let path = &keys.path;
        let hops = match direction {
            Direction::ToServer => 0,
            Direction::ToClient => path.hops.len(),
        };
        Self {
            direction,
            head: head_context(path, direction),
            contexts: Contexts::new(path, |_| None),
            audits: Audits::new(path),
            exchanges: 0,
            exchange_bytes: 0,
            open: None,
            answers: vec![Digest::default(); hops],
            finished: false,
            out: Vec::new(),
            keys,
        }
    }

    fn context(&mut self, context: u8) -> Result<&mut Context<Option<Keys>>, ContextError> {
        if self.finished {
            return Err(ContextError::Closed);
        }
        let found = self.contexts.get_mut(context).filter(|_| context > 0);
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

    /// Begins the message of a context in the current exchange without data, so that the end of an
    /// earlier one need not wait for it.
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
        if self.contexts.slots < FIRST_RECORDS {
            layout.capacity_of(MAX_FIRST)
        } else {
            layout.capacity()
        }
    }

    fn open(&mut self, context: u8) -> &mut Open {
        self.contexts[context].begun = true;
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

    /// Ends the exchange: every message that was begun, and with an audit. `request` is the digest
    /// of the request that a server answers, for each hop.
    pub(crate) fn finish(&mut self, request: &[Digest]) -> Result<(), ContextError> {
        let numbered = (1..=u8::MAX).zip(self.contexts.of_messages());
        let unended = numbered.filter(|(_, context)| context.begun && !context.ended);
        let unended: Vec<u8> = unended.map(|(number, _)| number).collect();
        for context in unended {
            self.end(context)?;
        }
        if !self.contexts.is_begun() {
            self.open(self.head).end = true;
        }
        self.seal_open(Some(Kind::Exchange))?;
        self.put_audit(Kind::Exchange, request);
        self.contexts.end_messages();
        self.exchanges += 1;
        self.exchange_bytes = 0;
        Ok(())
    }

    /// Seals what is open, with an audit, because nothing more is to be sent for now. The end of a
    /// message stays behind, so that the exchange can end with it.
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
                self.open = held;
                return Ok(());
            }
        }
    }

    /// Ends this direction with the number of slots of each context. Nothing can be sent after it.
    pub(crate) fn fin(&mut self) -> Result<(), ContextError> {
        if self.contexts.is_begun() {
            return Err(ContextError::State("an exchange is open"));
        }
        let counts: Vec<u8> = self.contexts.slot_counts().collect();
        self.control(CONTROL_FIN, &counts)?;
        self.finished = true;
        Ok(())
    }

    fn seal_open(&mut self, mark: Option<Kind>) -> Result<(), ContextError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let all = self.contexts.slots;
        let layout = self.contexts[open.context].layout;
        let last_of_first = all + 1 == FIRST_RECORDS && open.data.len() >= self.capacity(layout);
        let head = Head {
            context: open.context,
            slot: true,
            mark: mark.is_some() || self.audits.is_due() || last_of_first,
            end: open.end,
            origin: 0,
        };
        let context = &mut self.contexts[open.context];
        let place = Position { n: context.slots, g: all, q: 0 };
        let derive = || Keys::new(&self.keys, open.context, self.direction);
        let keys = context.keys.get_or_insert_with(derive).seal_keys();
        let written = record::seal(keys, (head, place, layout), &open.data, &mut self.out)?;
        self.contexts.count_slot(open.context);
        self.note(open.context, &written);
        // An exchange's audit is written by `finish`, which has the endorsements.
        if head.mark && mark != Some(Kind::Exchange) {
            self.put_audit(Kind::Part, &[]);
        }
        Ok(())
    }

    fn note(&mut self, context: u8, written: &Written) {
        let tags = &self.out[written.tags.clone()];
        self.audits.add(context, written, tags);
        for (hop, answer) in (1..).zip(&mut self.answers) {
            if self.keys.path.right(context, hop) >= Right::Read {
                *answer = sha256(&[answer, &written.meta, &written.hash]);
            }
        }
    }

    fn put_audit(&mut self, kind: Kind, request: &[Digest]) {
        let slots = self.contexts.slots;
        let counters = Counters { audits: self.audits.count, slots, exchange: self.exchanges };
        let endorsements = match kind {
            Kind::Exchange => self.endorse(counters, request),
            _ => Vec::new(),
        };
        let derive = || self.keys.secret.audit(self.direction, &self.keys.th2);
        self.audits.put((kind, counters), &endorsements, derive, &mut self.out);
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
        self.contexts.of_messages().iter().any(|context| context.begun || context.ended)
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
