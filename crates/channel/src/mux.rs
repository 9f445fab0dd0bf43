//! The multiplexer: many streams of messages on one connection.
//!
//! There is no send queue per stream: [`Mux::write`] writes frames directly into the open record,
//! or refuses when enough is pending; a refused writer gets a Writable event later. `inbound`
//! handles received frames, `scheduler` decides which stream may write how much, `grants` does flow
//! control.

mod grants;
mod ids;
mod inbound;
mod scheduler;

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::credit::{Credit, FRAME_COST, INITIAL_CONNECTION, INITIAL_STREAM, PathState};
use crate::frame::{self, Frame};
use crate::recv_buffer::RecvBuffer;
use crate::stream::{Direction, Receiver, Sender, Stream, Wait};
use crate::tls::Tls;
use crate::{Class, Error, Event, Options, StreamError, varint};
use grants::Grants;
pub use ids::StreamId;
use ids::{IdState, Ids};
use scheduler::Scheduler;

/// The result of [`crate::Connection::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Bytes of one message were written to the buffer.
    Data {
        /// How many; 0 only if `end`, or if the buffer is empty.
        len: usize,
        /// Whether the message ends with them.
        end: bool,
    },
    /// Nothing has arrived; [`crate::Event::Readable`] follows.
    Blocked,
    /// The peer has finished, and all messages were read.
    Finished,
}

/// The result of [`crate::Connection::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The receive buffer holds something to read.
    Messages,
    /// Nothing has arrived; [`crate::Event::Readable`] follows.
    Blocked,
    /// The peer has finished, and all messages were taken.
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
    scheduler: Scheduler,
    /// This side's streams that are open on the wire.
    live_own: usize,
    /// The peer's streams that are open on the wire.
    live_peer: usize,
    /// The peer's streams that were not forgotten.
    held_peer: usize,
    /// Frames that need no credit, written on the peer's streams since the last transmission.
    free_frames: usize,
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
            scheduler: Scheduler::new(),
            live_own: 0,
            live_peer: 0,
            held_peer: 0,
            free_frames: 0,
            events: VecDeque::new(),
            closed: false,
        }
    }

    /// The time and the round-trip time that windows are sized by.
    pub(crate) fn path(&mut self) -> &mut PathState {
        &mut self.grants.path
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
        stream.sender.check(self.closed)?;
        if data.is_empty() && !end {
            return Ok(Some(0));
        }
        let quantum = self.scheduler.quantum(stream, tls.pending());
        let least = FRAME_COST + u64::from(!data.is_empty());
        if stream.sender.credit.left() < least {
            stream.sender.wait = Wait::Credit;
            return Ok(None);
        }
        if quantum == 0 || self.credit.left() < least {
            self.scheduler.queue(id, stream);
            return Ok(None);
        }
        let sender = &mut stream.sender;
        let done = put_message(tls, id, sender, &mut self.credit, (data, end), quantum);
        sender.partial = !(end && done == data.len());
        sender.usage.written += FRAME_COST as usize + done;
        Ok(Some(done))
    }

    /// See [`crate::Connection::finish`].
    pub(crate) fn finish(&mut self, tls: &mut Tls, id: StreamId) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id.0).ok_or(StreamError::Unknown)?;
        match stream.sender.check(self.closed) {
            Err(StreamError::Finished) => return Ok(()),
            checked => checked?,
        }
        if stream.sender.partial {
            self.reset(tls, id, 0);
            return Err(StreamError::Reset(0));
        }
        stream.sender.direction = Direction::Finished;
        self.free_frames += usize::from(stream.by_peer);
        put_control(tls, &Frame::Data { stream: id.0, flags: frame::FIN, bytes: &[] });
        self.retire_if_over(id.0);
        Ok(())
    }

    /// See [`crate::Connection::reset`].
    pub(crate) fn reset(&mut self, tls: &mut Tls, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        let code = code.min(varint::MAX);
        if stream.live && !self.closed {
            self.free_frames += usize::from(stream.by_peer);
            put_control(tls, &Frame::Reset { stream: id.0, code });
        }
        // A code of the peer stays, because it is the cause of this reset.
        for direction in [&mut stream.sender.direction, &mut stream.receiver.direction] {
            if !matches!(direction, Direction::Reset(_)) {
                *direction = Direction::Reset(code);
            }
        }
        self.grants.discard(id.0, &mut stream.receiver);
        self.retire_if_over(id.0);
    }

    /// See [`crate::Connection::read`].
    pub(crate) fn read(&mut self, id: StreamId, buf: &mut [u8]) -> Result<Read, StreamError> {
        self.read_by(id, |recv_buffer| recv_buffer.read(buf))
    }

    /// See [`crate::Connection::read_to`].
    pub(crate) fn read_to(
        &mut self,
        id: StreamId,
        buf: &mut Vec<u8>,
        max: usize,
    ) -> Result<Read, StreamError> {
        self.read_by(id, |recv_buffer| recv_buffer.read_to(buf, max))
    }

    fn read_by(
        &mut self,
        StreamId(id): StreamId,
        read: impl FnOnce(&mut RecvBuffer) -> Option<(usize, bool)>,
    ) -> Result<Read, StreamError> {
        let receiver = receiver(&mut self.streams, id)?;
        if let Some((len, end)) = read(&mut receiver.buffer) {
            let freed = receiver.buffer.take_freed();
            self.grants.release(id, receiver, freed);
            return Ok(Read::Data { len, end });
        }
        match receiver.has_ended(self.closed)? {
            true => Ok(Read::Finished),
            false => Ok(Read::Blocked),
        }
    }

    /// See [`crate::Connection::take`].
    pub(crate) fn take(
        &mut self,
        id: StreamId,
        recv_buffer: &mut RecvBuffer,
        reader_memory: usize,
    ) -> Result<Taken, StreamError> {
        let receiver = receiver(&mut self.streams, id.0)?;
        if !recv_buffer.is_empty() {
            return Ok(Taken::Messages);
        }
        if self.grants.is_initial() {
            // The reader's buffer is freed instead of swapped into the stream, where its capacity
            // would count.
            *recv_buffer = RecvBuffer::default();
            // Twice, because the reader's vector doubles when it grows, and holds decoded data in
            // addition.
            receiver.taken = 2 * (receiver.buffer.memory() + reader_memory);
        }
        if !receiver.buffer.is_empty() {
            std::mem::swap(&mut receiver.buffer, recv_buffer);
            return Ok(Taken::Messages);
        }
        match receiver.has_ended(self.closed)? {
            true => Ok(Taken::Finished),
            false => Ok(Taken::Blocked),
        }
    }

    /// See [`crate::Connection::release`].
    pub(crate) fn release(&mut self, StreamId(id): StreamId, freed: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        // A stream that was reset meanwhile has released all of its credit.
        let freed = freed.min(stream.receiver.window.held());
        if freed > 0 {
            self.grants.release(id, &mut stream.receiver, freed);
        }
    }

    /// See [`crate::Connection::forget`].
    pub(crate) fn forget(&mut self, tls: &mut Tls, id: StreamId) {
        if self.streams.get(&id.0).is_some_and(|stream| stream.live) {
            self.reset(tls, id, 0);
        }
        let Some(mut stream) = self.streams.remove(&id.0) else { return };
        self.grants.discard(id.0, &mut stream.receiver);
        self.held_peer -= usize::from(stream.by_peer);
    }

    /// Ends all writing. What has arrived may still be read.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Discards all unread data, and ends all reading.
    pub(crate) fn abandon(&mut self) {
        for stream in self.streams.values_mut() {
            stream.receiver.buffer.clear();
            stream.receiver.direction = Direction::Reset(0);
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

    /// See [`Grants::raise_receive_window`].
    pub(crate) fn raise_receive_window(&mut self, bytes: u64) {
        self.grants.raise_receive_window(bytes);
    }

    /// See [`crate::Connection::reset_code`].
    pub(crate) fn reset_code(&self, id: StreamId) -> Option<u64> {
        let stream = self.streams.get(&id.0)?;
        let directions = [stream.sender.direction, stream.receiver.direction];
        directions.into_iter().find_map(|direction| match direction {
            Direction::Reset(code) => Some(code),
            _ => None,
        })
    }

    /// See [`Grants::take_rtt_probe`].
    pub(crate) fn take_rtt_probe(&mut self) -> bool {
        self.grants.take_rtt_probe()
    }

    /// Whether [`Self::flush`] may have frames to write.
    pub(crate) fn wants_flush(&self) -> bool {
        self.grants.has_updates()
    }

    /// Writes the window updates that are due.
    pub(crate) fn flush(&mut self, tls: &mut Tls) {
        if let Some(frame) = self.grants.take_connection_update() {
            put_control(tls, &frame);
        }
        while let Some(id) = self.grants.take_stream_update() {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let receiver = &mut stream.receiver;
            receiver.window_due = false;
            if receiver.direction == Direction::Open {
                put_control(tls, &Frame::Window { stream: id, limit: receiver.window.limit() });
            }
        }
    }

    /// The output was taken, so waiting streams may write again.
    pub(crate) fn transmitted(&mut self) {
        self.free_frames = 0;
        self.scheduler.next_round();
        self.wake();
    }

    /// See [`crate::Connection::written`].
    pub(crate) fn written(&mut self) {
        if self.scheduler.written() {
            self.wake();
        }
    }

    /// Pushes Writable events for waiting streams, unless the connection itself lacks credit.
    fn wake(&mut self) {
        if self.credit.left() <= FRAME_COST || self.closed {
            return;
        }
        for id in self.scheduler.wake() {
            if let Some(stream) = self.streams.get_mut(&id)
                && stream.sender.wait == Wait::Quantum
            {
                stream.sender.wait = Wait::No;
                self.events.push_back(Event::Writable(StreamId(id)));
            }
        }
    }

    fn add(&mut self, id: u64, class: Class, by_peer: bool) {
        let credit = Credit::new(INITIAL_STREAM);
        let mut stream = Stream::new(class, by_peer, credit, self.grants.window());
        self.grants.grant_initial(id, &mut stream.receiver);
        self.scheduler.opened(class);
        self.streams.insert(id, stream);
    }

    /// Subtracts a stream from the count of open ones when both directions have ended.
    fn retire_if_over(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.live || !stream.is_over() {
            return;
        }
        stream.live = false;
        self.scheduler.ended(stream.class);
        let live = if stream.by_peer { &mut self.live_peer } else { &mut self.live_own };
        *live -= 1;
    }
}

/// The receiving direction of the stream `id`, unless it was reset.
fn receiver(
    streams: &mut HashMap<u64, Stream, ids::BuildHasher>,
    id: u64,
) -> Result<&mut Receiver, StreamError> {
    let receiver = &mut streams.get_mut(&id).ok_or(StreamError::Unknown)?.receiver;
    match receiver.direction {
        Direction::Reset(code) => Err(StreamError::Reset(code)),
        _ => Ok(receiver),
    }
}

/// Writes as much of a message, or of a part of it, as quantum and credit allow; returns how many
/// bytes.
fn put_message(
    tls: &mut Tls,
    id: u64,
    sender: &mut Sender,
    connection: &mut Credit,
    (data, end): (&[u8], bool),
    quantum: usize,
) -> usize {
    let mut done = 0;
    loop {
        let credit = sender.credit.left().min(connection.left()).saturating_sub(FRAME_COST);
        let want = (data.len() - done).min(quantum - done);
        let want = want.min(usize::try_from(credit).unwrap_or(usize::MAX));
        tls.reserve(want);
        if want == 0 && !data.is_empty() {
            return done;
        }
        let part = &data[done..done + fit(tls, id, want)];
        done += part.len();
        let last = done == data.len();
        let flags = if last && end { frame::END } else { 0 };
        frame::put_data(tls.content(), id, flags, part);
        sender.credit.spend(FRAME_COST + part.len() as u64);
        connection.spend(FRAME_COST + part.len() as u64);
        if last {
            return done;
        }
    }
}

/// How many of `want` bytes go into the next DATA frame. A record with room for only a few bytes is
/// sealed, and the frame goes into the next one.
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
