//! The multiplexer: many streams of messages on one connection.
//!
//! There is no queue per stream: [`Mux::write`] puts frames straight into the open record, or
//! refuses when enough is pending; who was refused is called by a Writable event. What comes in is
//! in `inbound`, who may write how much is in `turns`.

mod grants;
mod ids;
mod inbound;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Instant;

use crate::credit::{Credit, FRAME_COST, INITIAL_CONNECTION, INITIAL_STREAM, Pace};
use crate::frame::{self, Frame};
use crate::inbox::Inbox;
use crate::stream::{Direction, Stream, Wait};
use crate::tls::Tls;
use crate::{Error, Event, Options, StreamError, varint};
use grants::Grants;
use ids::{IdState, Ids};
use turns::Turns;

/// One stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which streams go first when there is more to send than the transport carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Goes first; for a person who waits.
    Interactive,
    /// Goes when no interactive stream has anything to send.
    Bulk,
}

/// What [`crate::Connection::read`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Bytes of one message were written to the buffer.
    Data {
        /// How many; 0 only if `end`, or if none were asked for.
        len: usize,
        /// Whether the message ends with them.
        end: bool,
    },
    /// Nothing there now; [`crate::Event::Readable`] follows.
    Blocked,
    /// The peer has no more messages, and all were read.
    Finished,
}

/// What [`crate::Connection::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There is something to read in the inbox.
    Messages,
    /// Nothing has come; [`crate::Event::Readable`] follows.
    Blocked,
    /// The peer has no more messages, and all were taken.
    Finished,
}

/// All streams of one connection.
pub(crate) struct Mux {
    streams: HashMap<u64, Stream, ids::BuildHasher>,
    ids: Ids,
    max_streams: usize,
    /// What this side may still send on the connection.
    credit: Credit,
    grants: Grants,
    turns: Turns,
    /// Streams that are open on the wire, and streams of the peer not yet forgotten.
    live_own: usize,
    live_peer: usize,
    held_peer: usize,
    /// Frames without credit written on streams of the peer since the last transmission.
    unpaid: usize,
    events: VecDeque<Event>,
    closed: bool,
}

impl Mux {
    pub(crate) fn new(client: bool, options: &Options, now: Instant) -> Self {
        Self {
            streams: HashMap::default(),
            ids: Ids::new(client),
            max_streams: options.max_streams as usize,
            credit: Credit::new(INITIAL_CONNECTION),
            grants: Grants::new(options, now),
            turns: Turns::new(),
            live_own: 0,
            live_peer: 0,
            held_peer: 0,
            unpaid: 0,
            events: VecDeque::new(),
            closed: false,
        }
    }

    /// The clock that windows go by.
    pub(crate) fn pace(&mut self) -> &mut Pace {
        &mut self.grants.pace
    }

    /// Adds an event that is not of a stream.
    pub(crate) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// See [`crate::Connection::open`].
    pub(crate) fn open(&mut self, tls: &mut Tls, class: Class) -> Result<StreamId, Error> {
        if self.closed {
            return Err(Error::Closed);
        }
        if self.live_own >= self.max_streams {
            return Err(Error::TooManyStreams);
        }
        let id = self.ids.next_own();
        let flags = if class == Class::Bulk { frame::BULK } else { 0 };
        put_control(tls, &Frame::Data { stream: id, flags, bytes: &[] });
        self.live_own += 1;
        self.add(id, class, false);
        Ok(StreamId(id))
    }

    #[cfg(test)]
    pub(crate) fn streams(&self) -> Vec<StreamId> {
        self.streams.keys().map(|&id| StreamId(id)).collect()
    }

    /// See [`crate::Connection::class`].
    pub(crate) fn class(&self, id: StreamId) -> Option<Class> {
        self.streams.get(&id.0).map(|stream| stream.class)
    }

    /// See [`crate::Connection::write`].
    pub(crate) fn write(
        &mut self,
        tls: &mut Tls,
        StreamId(id): StreamId,
        data: &[u8],
        end: bool,
    ) -> Result<Option<usize>, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        check_sending(stream, self.closed)?;
        if data.is_empty() && !end {
            return Ok(Some(0));
        }
        let quota = self.turns.quota(stream, tls.pending());
        let least = FRAME_COST + u64::from(!data.is_empty());
        if stream.credit.left() < least {
            stream.wait = Wait::Credit;
            return Ok(None);
        }
        if quota == 0 || self.credit.left() < least {
            self.turns.queue(id, stream);
            return Ok(None);
        }
        let done = put_message(tls, id, stream, &mut self.credit, (data, end), quota);
        stream.partial = !(end && done == data.len());
        stream.turn.1 += FRAME_COST as usize + done;
        Ok(Some(done))
    }

    /// See [`crate::Connection::finish`].
    pub(crate) fn finish(&mut self, tls: &mut Tls, id: StreamId) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        match check_sending(stream, self.closed) {
            Err(StreamError::Finished) => return Ok(()),
            checked => checked?,
        }
        if stream.partial {
            self.reset(tls, id, 0);
            return Err(StreamError::Reset(0));
        }
        stream.sending = Direction::Finished;
        self.unpaid += usize::from(stream.by_peer);
        put_control(tls, &Frame::Data { stream: id.0, flags: frame::FIN, bytes: &[] });
        self.settle(id.0);
        Ok(())
    }

    /// See [`crate::Connection::reset`].
    pub(crate) fn reset(&mut self, tls: &mut Tls, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        let code = code.min(varint::MAX);
        if stream.live && !self.closed {
            self.unpaid += usize::from(stream.by_peer);
            put_control(tls, &Frame::Reset { stream: id.0, code });
        }
        // What the peer gave as its reason stays: it says more than that we gave up afterwards.
        for direction in [&mut stream.sending, &mut stream.receiving] {
            if !matches!(direction, Direction::Reset(_)) {
                *direction = Direction::Reset(code);
            }
        }
        self.grants.discard(id.0, stream);
        self.settle(id.0);
    }

    /// See [`crate::Connection::read`].
    pub(crate) fn read(&mut self, id: StreamId, buf: &mut [u8]) -> Result<Read, StreamError> {
        self.read_by(id, |inbox| inbox.read(buf))
    }

    /// See [`crate::Connection::read_to`].
    pub(crate) fn read_to(
        &mut self,
        id: StreamId,
        buf: &mut Vec<u8>,
        max: usize,
    ) -> Result<Read, StreamError> {
        self.read_by(id, |inbox| inbox.read_to(buf, max))
    }

    fn read_by(
        &mut self,
        StreamId(id): StreamId,
        read: impl FnOnce(&mut Inbox) -> Option<(usize, bool)>,
    ) -> Result<Read, StreamError> {
        let stream = receiver(&mut self.streams, id)?;
        if let Some((len, end)) = read(&mut stream.inbox) {
            let freed = stream.inbox.take_freed();
            self.grants.release(id, stream, freed);
            return Ok(Read::Data { len, end });
        }
        match nothing_to_read(stream, self.closed)? {
            true => Ok(Read::Finished),
            false => Ok(Read::Blocked),
        }
    }

    /// See [`crate::Connection::take`].
    pub(crate) fn take(
        &mut self,
        id: StreamId,
        inbox: &mut Inbox,
        beside: usize,
    ) -> Result<Taken, StreamError> {
        let stream = receiver(&mut self.streams, id.0)?;
        if !inbox.is_empty() {
            return Ok(Taken::Messages);
        }
        if self.grants.is_initial() {
            // Its memory is given back, and not lent to the stream, whose own is counted.
            *inbox = Inbox::default();
            // A buffer that doubles, and what was decoded of it.
            stream.taken = 2 * (stream.inbox.memory() + beside);
        }
        if !stream.inbox.is_empty() {
            std::mem::swap(&mut stream.inbox, inbox);
            return Ok(Taken::Messages);
        }
        match nothing_to_read(stream, self.closed)? {
            true => Ok(Taken::Finished),
            false => Ok(Taken::Blocked),
        }
    }

    /// See [`crate::Connection::release`].
    pub(crate) fn release(&mut self, StreamId(id): StreamId, freed: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        // A stream that was reset since has released all that it held.
        let freed = freed.min(stream.window.held());
        if freed > 0 {
            self.grants.release(id, stream, freed);
        }
    }

    /// See [`crate::Connection::forget`].
    pub(crate) fn forget(&mut self, tls: &mut Tls, id: StreamId) {
        if self.streams.get(&id.0).is_some_and(|stream| stream.live) {
            self.reset(tls, id, 0);
        }
        let Some(mut stream) = self.streams.remove(&id.0) else { return };
        self.grants.discard(id.0, &mut stream);
        self.held_peer -= usize::from(stream.by_peer);
    }

    /// The connection ends: nothing is written any more, and what has come may still be read.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Throws away all that has come and was not read: nothing can be read any more.
    pub(crate) fn abandon(&mut self) {
        for stream in self.streams.values_mut() {
            stream.inbox.clear();
            stream.receiving = Direction::Reset(0);
        }
    }

    /// See [`crate::Connection::memory`].
    pub(crate) fn memory(&self) -> usize {
        self.streams.values().map(Stream::memory).sum()
    }

    /// See [`Grants::raise`].
    pub(crate) fn raise_credit(&mut self) {
        self.grants.raise();
    }

    /// See [`Grants::hold`].
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.grants.hold(bytes);
    }

    /// See [`crate::Connection::reset_code`].
    pub(crate) fn reset_code(&self, id: StreamId) -> Option<u64> {
        let stream = self.streams.get(&id.0)?;
        [stream.sending, stream.receiving].into_iter().find_map(|direction| match direction {
            Direction::Reset(code) => Some(code),
            _ => None,
        })
    }

    /// See [`Grants::take_measure`].
    pub(crate) fn take_measure(&mut self) -> bool {
        self.grants.take_measure()
    }

    /// Whether [`Self::flush`] may have something to say.
    pub(crate) fn wants_flush(&self) -> bool {
        self.grants.any_due()
    }

    /// Writes the new limits of windows that have moved.
    pub(crate) fn flush(&mut self, tls: &mut Tls) {
        if let Some(frame) = self.grants.take_connection_due() {
            put_control(tls, &frame);
        }
        while let Some(id) = self.grants.take_stream_due() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.window_due = false;
            if stream.receiving == Direction::Open {
                put_control(tls, &Frame::Window { stream: id, limit: stream.window.limit() });
            }
        }
    }

    /// The output was taken: those who waited for it may write again.
    pub(crate) fn transmitted(&mut self) {
        self.unpaid = 0;
        self.turns.next_round();
        self.wake();
    }

    /// See [`crate::Connection::written`].
    pub(crate) fn written(&mut self) {
        if self.turns.written() {
            self.wake();
        }
    }

    /// Calls all who wait for their turn, unless the connection itself lacks credit.
    fn wake(&mut self) {
        if self.credit.left() <= FRAME_COST || self.closed {
            return;
        }
        for id in self.turns.wake() {
            if let Some(stream) = self.streams.get_mut(&id)
                && stream.wait == Wait::Turn
            {
                stream.wait = Wait::No;
                self.events.push_back(Event::Writable(StreamId(id)));
            }
        }
    }

    fn add(&mut self, id: u64, class: Class, by_peer: bool) {
        let credit = Credit::new(INITIAL_STREAM);
        let mut stream = Stream::new(class, by_peer, credit, self.grants.window());
        self.grants.widen(id, &mut stream);
        self.turns.opened(class);
        self.streams.insert(id, stream);
    }

    /// Takes a stream off the count of open ones when both directions have ended.
    fn settle(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.live || !stream.is_over() {
            return;
        }
        stream.live = false;
        self.turns.ended(stream.class);
        let live = if stream.by_peer { &mut self.live_peer } else { &mut self.live_own };
        *live -= 1;
    }
}

/// The stream `id`, unless what had come for it was thrown away.
fn receiver(
    streams: &mut HashMap<u64, Stream, ids::BuildHasher>,
    id: u64,
) -> Result<&mut Stream, StreamError> {
    let stream = streams.get_mut(&id).ok_or(StreamError::Unknown)?;
    match stream.receiving {
        Direction::Reset(code) => Err(StreamError::Reset(code)),
        _ => Ok(stream),
    }
}

/// All that has come was read: whether that is the end.
fn nothing_to_read(stream: &Stream, closed: bool) -> Result<bool, StreamError> {
    match stream.receiving {
        Direction::Finished => Ok(true),
        _ if closed => Err(StreamError::Closed),
        _ => Ok(false),
    }
}

fn check_sending(stream: &Stream, closed: bool) -> Result<(), StreamError> {
    match stream.sending {
        Direction::Reset(code) => Err(StreamError::Reset(code)),
        Direction::Finished => Err(StreamError::Finished),
        Direction::Open if closed => Err(StreamError::Closed),
        Direction::Open => Ok(()),
    }
}

/// Writes as much of a message, or of a part of it, as quota and credit allow: how many bytes.
fn put_message(
    tls: &mut Tls,
    id: u64,
    stream: &mut Stream,
    connection: &mut Credit,
    (data, end): (&[u8], bool),
    quota: usize,
) -> usize {
    let mut done = 0;
    loop {
        let credit = stream.credit.left().min(connection.left()).saturating_sub(FRAME_COST);
        let want = (data.len() - done).min(quota - done);
        let want = want.min(usize::try_from(credit).unwrap_or(usize::MAX));
        if want == 0 && !data.is_empty() {
            return done;
        }
        let part = &data[done..done + fit(tls, id, want)];
        done += part.len();
        let last = done == data.len();
        let flags = if last && end { frame::END } else { 0 };
        frame::put_data(tls.content(), id, flags, part);
        stream.credit.spend(FRAME_COST + part.len() as u64);
        connection.spend(FRAME_COST + part.len() as u64);
        if last {
            return done;
        }
    }
}

/// How many of `want` bytes go into one DATA frame. A record with less room than a few bytes is
/// left as it is.
fn fit(tls: &mut Tls, id: u64, want: usize) -> usize {
    const WORTHWHILE: usize = 16;
    let fixed = 1 + varint::len(id);
    let room = tls.room(fixed + 2 + want.min(WORTHWHILE)) - fixed;
    if want.min(room - 1) < 64 { want.min(room - 1) } else { want.min(room - 2) }
}

/// Writes a short frame.
pub(crate) fn put_control(tls: &mut Tls, frame: &Frame<'_>) {
    tls.room(frame::MAX_CONTROL);
    frame.put(tls.content());
}
