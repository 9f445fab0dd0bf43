//! What the peer's frames do to streams.

use super::{IdState, Mux, StreamId};
use crate::credit::FRAME_COST;
use crate::frame::{BULK, END, FIN, MessageHead};
use crate::stream::{Direction, Stream, Wait};
use crate::{Class, Error, Event};

/// How many of the peer's streams this side keeps state for, per stream that may be open.
const HELD_PER_STREAM: usize = 4;
/// How many frames that need no credit the peer can make this side queue, per stream that may be
/// open.
const FREE_FRAMES_PER_STREAM: usize = 16;

impl Mux {
    /// Handles a DATA frame.
    pub(crate) fn on_data(&mut self, id: u64, flags: u8, bytes: &[u8]) -> Result<(), Error> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return match self.ids.state(id) {
                IdState::NextOfPeer => self.on_open(id, flags, bytes),
                IdState::Used => self.on_late_data(flags, bytes),
                IdState::Unused => Err(Error::Protocol("data on a stream that is not open")),
            };
        };
        if flags & BULK != 0 {
            return Err(Error::Protocol("a class given twice"));
        }
        let receiver = &mut stream.receiver;
        let Direction::Open = receiver.direction else {
            return match receiver.direction {
                Direction::Finished => Err(Error::Protocol("data behind the end of a stream")),
                _ => self.on_late_data(flags, bytes),
            };
        };
        let end = flags & END != 0;
        let cost = cost(flags, bytes)?;
        self.grants.connection.charge(cost)?;
        receiver.window.charge(cost)?;
        if !end && !self.grants.is_initial() {
            receiver.buffer.expect_more_than(bytes.len());
        }
        receiver.buffer.push(bytes, end);
        receiver.partial = !end && (receiver.partial || !bytes.is_empty());
        if flags & FIN != 0 {
            if receiver.partial {
                return Err(Error::Protocol("a stream that ends within a message"));
            }
            receiver.direction = Direction::Finished;
        }
        if !receiver.readable {
            receiver.readable = true;
            self.events.push_back(Event::Readable(StreamId(id)));
        }
        // The cost of a frame pays for the stored end of a message, so a frame without one returns
        // it at once.
        if cost > 0 && !end {
            self.grants.release(id, receiver, FRAME_COST);
        }
        if flags & FIN != 0 {
            self.retire_if_over(id);
        }
        Ok(())
    }

    /// Handles the DATA frames at the front of `rest` that each end a message of the stream `id`,
    /// after [`Self::on_data`] accepted one. A record of short messages is a run of them, and this
    /// looks the stream up once for all.
    pub(crate) fn on_messages(&mut self, id: u64, rest: &mut &[u8]) -> Result<(), Error> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let receiver = &mut stream.receiver;
        if receiver.direction != Direction::Open {
            return Ok(());
        }
        let Some(head) = MessageHead::new(id) else { return Ok(()) };
        while let Some(bytes) = head.take(rest)? {
            let cost = FRAME_COST + bytes.len() as u64;
            self.grants.connection.charge(cost)?;
            receiver.window.charge(cost)?;
            receiver.buffer.push(bytes, true);
        }
        Ok(())
    }

    /// The first frame of a stream has no content but the class.
    fn on_open(&mut self, id: u64, flags: u8, bytes: &[u8]) -> Result<(), Error> {
        if flags & !BULK != 0 || !bytes.is_empty() {
            return Err(Error::Protocol("data on a stream that is not open"));
        }
        if self.live_peer >= self.max_streams {
            return Err(Error::Protocol("too many streams"));
        }
        if self.held_peer >= HELD_PER_STREAM * self.max_streams
            || self.free_frames > FREE_FRAMES_PER_STREAM * self.max_streams
        {
            return Err(Error::Flood("streams opened and ended"));
        }
        self.ids.peer_opened();
        self.live_peer += 1;
        self.held_peer += 1;
        self.add(id, if flags & BULK != 0 { Class::Bulk } else { Class::Interactive }, true);
        self.events.push_back(Event::Opened(StreamId(id)));
        Ok(())
    }

    /// Data that was in flight when this side reset its stream is charged against the connection's
    /// credit and discarded.
    fn on_late_data(&mut self, flags: u8, bytes: &[u8]) -> Result<(), Error> {
        let cost = cost(flags, bytes)?;
        self.grants.connection.charge(cost)?;
        self.grants.release_connection(cost);
        Ok(())
    }

    /// Handles a WINDOW frame; stream 0 is the connection.
    pub(crate) fn on_window(&mut self, id: u64, limit: u64) -> Result<(), Error> {
        if id == 0 {
            self.credit.raise(limit);
            self.wake();
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return self.check_used(id) };
        let sender = &mut stream.sender;
        sender.credit.raise(limit);
        if sender.wait == Wait::Credit {
            sender.wait = Wait::No;
            self.events.push_back(Event::Writable(StreamId(id)));
        }
        Ok(())
    }

    /// Handles a RESET frame. If the peer had finished its direction before, what it sent is
    /// complete and stays readable.
    pub(crate) fn on_reset(&mut self, id: u64, code: u64) -> Result<(), Error> {
        let Some(stream) = self.streams.get_mut(&id) else { return self.check_used(id) };
        let Stream { sender, receiver, .. } = stream;
        let open = sender.direction == Direction::Open || receiver.direction == Direction::Open;
        if sender.direction == Direction::Open {
            sender.direction = Direction::Reset(code);
            if sender.wait != Wait::No {
                sender.wait = Wait::No;
                self.events.push_back(Event::Writable(StreamId(id)));
            }
        }
        if receiver.direction == Direction::Open {
            receiver.direction = Direction::Reset(code);
            if !receiver.readable {
                receiver.readable = true;
                self.events.push_back(Event::Readable(StreamId(id)));
            }
            self.grants.discard(id, receiver);
        }
        if open {
            self.events.push_back(Event::Reset(StreamId(id)));
        }
        self.retire_if_over(id);
        Ok(())
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Readable(StreamId(id)) = event
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.receiver.readable = false;
        }
        Some(event)
    }

    /// A frame for an unknown stream is ignored if the stream existed, and an error otherwise.
    fn check_used(&self, id: u64) -> Result<(), Error> {
        match self.ids.state(id) {
            IdState::Used => Ok(()),
            _ => Err(Error::Protocol("a frame for a stream that is not open")),
        }
    }
}

/// The credit that a DATA frame costs its sender. A bare FIN costs none, because a stream has only
/// one.
fn cost(flags: u8, bytes: &[u8]) -> Result<u64, Error> {
    match (bytes.is_empty(), flags & (END | FIN)) {
        (true, 0) => Err(Error::Protocol("a frame with nothing in it")),
        (true, FIN) => Ok(0),
        _ => Ok(FRAME_COST + bytes.len() as u64),
    }
}
