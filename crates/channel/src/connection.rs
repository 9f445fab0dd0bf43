//! One end of a channel.

use levada_core::{Framing, Identity, WIRE_VERSIONS};
use std::fmt;
use std::time::{Duration, Instant};

use crate::frame::{Frame, MAX_REASON};
use crate::liveness::{Liveness, Stage};
use crate::mux::{Mux, put_control};
use crate::tls::{Incoming, Tls};
use crate::{
    Class, ClientConfig, Error, Inbox, Options, Read, ServerConfig, StreamError, StreamId, Taken,
};
use crate::{record, varint};

/// What happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's identity is proved, and streams may be opened.
    Connected,
    /// The peer opened a stream.
    Opened(StreamId),
    /// The stream may have something to read: data, its end, or a reset.
    Readable(StreamId),
    /// The stream that refused a write may be written again.
    Writable(StreamId),
    /// The connection was closed in good order. Streams still hand out what had arrived; no event
    /// follows for them, so whoever waits on one should look again.
    Closed(Close),
}

/// Why and by whom a connection was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// A number for programs; at most 2^62 - 1.
    pub code: u64,
    /// A line for people, at most 256 bytes; the peer's words if `by_peer`.
    pub reason: String,
    /// Whether the peer closed first.
    pub by_peer: bool,
}

impl Close {
    /// Closed in good order, with nothing to say.
    pub const DONE: u64 = 0;
    /// The other side broke the protocol.
    pub const PROTOCOL: u64 = 1;
    /// The other side asked for too much.
    pub const FLOOD: u64 = 2;
    /// No version of the protocol in common.
    pub const VERSION: u64 = 3;
    /// The first code that the layers above may use for themselves.
    pub const APPLICATION: u64 = 16;
}

/// One end of a channel: an encrypted connection to a known identity that carries streams of
/// messages.
///
/// After an error of [`Self::receive`], [`Self::receive_end`] or [`Self::handle_timeout`] the
/// connection is dead; one last [`Self::transmit`] gives the bytes that tell the peer why.
pub struct Connection {
    client: bool,
    tls: Tls,
    mux: Mux,
    liveness: Liveness,
    /// The framing of the peer; None before its HELLO.
    peer_framing: Option<Framing>,
    /// The version that both sides speak; the lowest of this side before the peer's HELLO.
    version: u32,
    pong: Option<[u8; 8]>,
    failed: Option<Error>,
    /// CLOSE was sent or received: frames are neither written nor read.
    closed: bool,
    /// The peer's close_notify came.
    peer_ended: bool,
}

impl Connection {
    /// A client that talks to `expected` only, or to anybody; the latter must use a key that it does
    /// not mind to show. Its first flight is ready to be transmitted.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses.
    pub fn client(
        config: &ClientConfig,
        expected: Option<Identity>,
        options: Options,
        now: Instant,
    ) -> Result<Self, Error> {
        Ok(Self::new(true, Tls::client(config, expected)?, &options, now))
    }

    /// A server for one connection of any client.
    ///
    /// # Errors
    /// [`Error::Internal`] if the library refuses.
    pub fn server(config: &ServerConfig, options: Options, now: Instant) -> Result<Self, Error> {
        Ok(Self::new(false, Tls::server(config)?, &options, now))
    }

    fn new(client: bool, mut tls: Tls, options: &Options, now: Instant) -> Self {
        tls.set_framing(options.framing);
        tls.set_silent(!client);
        tls.set_records_per_key(options.records_per_key);
        Self {
            client,
            tls,
            mux: Mux::new(client, options, now),
            liveness: Liveness::new(options, now),
            peer_framing: None,
            version: *WIRE_VERSIONS.start(),
            pong: None,
            failed: None,
            closed: false,
            peer_ended: false,
        }
    }

    /// Takes the whole records at the front of `input`, decrypting them in place, and returns how
    /// many bytes they had. The caller keeps the rest and adds to it; room for 17 KiB is enough.
    ///
    /// # Errors
    /// Whatever is wrong with what the peer sent; the connection is dead then.
    pub fn receive(&mut self, now: Instant, input: &mut [u8]) -> Result<usize, Error> {
        self.alive()?;
        self.mux.pace().now = now;
        let result = self.receive_records(now, input);
        result.map_err(|error| self.fail(error))
    }

    /// The transport has ended.
    ///
    /// # Errors
    /// [`Error::Truncated`] unless either side had closed the connection before.
    pub fn receive_end(&mut self, now: Instant) -> Result<(), Error> {
        self.alive()?;
        self.mux.pace().now = now;
        if self.closed { Ok(()) } else { Err(self.fail(Error::Truncated)) }
    }

    /// Takes all bytes that wait to be sent. `out` is empty on call; its memory is used for what is
    /// written next, so the caller should pass the buffer that it has just emptied.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.mux.pace().now = now;
        if self.may_speak() {
            if let Some(token) = self.pong.take() {
                put_control(&mut self.tls, &Frame::Pong(token));
            }
            if self.mux.take_measure() {
                self.liveness.want_ping();
            }
            if let Some(token) = self.liveness.take_ping(now) {
                put_control(&mut self.tls, &Frame::Ping(token));
            }
            self.mux.flush(&mut self.tls);
        }
        self.tls.transmit(out);
        self.mux.transmitted();
    }

    /// The transport has accepted all that [`Self::transmit`] gave. Beside an interactive stream, bulk is only written then:
    /// what has not been chosen cannot stand before something urgent.
    pub fn written(&mut self) {
        self.mux.written();
    }

    /// Whether [`Self::transmit`] has bytes to give.
    pub fn wants_transmit(&self) -> bool {
        self.tls.wants_transmit()
            || (self.may_speak()
                && (self.pong.is_some() || self.liveness.ping_due() || self.mux.wants_flush()))
    }

    /// When to call [`Self::handle_timeout`] at the latest. It changes with every other call.
    pub fn timeout(&self) -> Option<Instant> {
        let running = self.failed.is_none() && !self.closed;
        running.then(|| self.liveness.deadline(self.stage()))
    }

    /// Time has passed.
    ///
    /// # Errors
    /// [`Error::HandshakeTimeout`] or [`Error::Idle`]; the connection is dead then.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        self.alive()?;
        self.mux.pace().now = now;
        if self.closed {
            return Ok(());
        }
        let result = self.liveness.check(self.stage(), now);
        result.map_err(|error| self.fail(error))
    }

    /// What happened since the last call, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.mux.poll_event()
    }

    /// Who the peer is; None until it has proved it. It may be known before [`Event::Connected`].
    pub fn peer(&self) -> Option<Identity> {
        self.tls.peer()
    }

    /// Whether the handshake resumed an earlier one: then no policy has looked at the peer yet.
    pub fn resumed(&self) -> bool {
        self.tls.resumed()
    }

    /// The smoothed round-trip time; None before the first answer to a PING.
    pub fn rtt(&self) -> Option<Duration> {
        self.liveness.rtt()
    }

    /// How this side's messages become records; a server adopts the client's wish with its HELLO.
    pub fn framing(&self) -> Framing {
        self.tls.framing()
    }

    /// How the peer's messages become records; None until it has said so.
    pub fn peer_framing(&self) -> Option<Framing> {
        self.peer_framing
    }

    /// The highest version of the protocol that both sides speak; the lowest of this side before the
    /// peer's HELLO has come.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// From now on holds at least `bytes` for readers that do not read, in all; see
    /// [`Options::connection_window`]. Less than before changes nothing.
    pub fn hold(&mut self, bytes: u64) {
        self.mux.hold(bytes);
    }

    /// Grants the peer what [`crate::Options::initial_credit_only`] has withheld. Repeating it does nothing.
    pub fn raise_credit(&mut self) {
        self.mux.raise_credit();
    }

    /// The memory, in bytes, of streams, of what has come and was not read, and of what waits to be sent. What readers
    /// took is counted while the credit is the initial one. Takes time in proportion to the number of streams.
    pub fn memory(&self) -> usize {
        self.mux.memory() + self.tls.memory()
    }

    /// As [`Self::close`], and throws away all that has come and was not read.
    pub fn abandon(&mut self, code: u64, reason: &str) {
        self.close(code, reason);
        self.mux.abandon();
    }

    /// Keying material that only the two ends of this connection know (RFC 8446 section 7.5): the
    /// same at both for the same `label`, `context` and length.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before the peer is known; [`Error::Internal`] if more is asked for
    /// than TLS can give, or the label is longer than 249 bytes. The connection goes on.
    pub fn export(&self, label: &str, context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.tls.export(label, context, out)
    }

    /// Ends the connection in good order: what was accepted goes first. `reason` is cut to 256 bytes,
    /// or to what one record holds.
    pub fn close(&mut self, code: u64, reason: &str) {
        if self.failed.is_none() && !self.closed {
            self.say_close(code, reason);
            self.shut(code, reason, false);
        }
    }

    /// Changes the keys of both directions now. Happens by itself in good time.
    pub fn update_key(&mut self) {
        if self.may_speak() {
            self.tls.update_key(true);
        }
    }

    /// Opens a stream; the peer learns of it at once.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before [`Event::Connected`], [`Error::TooManyStreams`] until one has
    /// ended on both sides, [`Error::Closed`]. The connection goes on.
    pub fn open(&mut self, class: Class) -> Result<StreamId, Error> {
        self.alive()?;
        if !self.may_speak() && !self.closed {
            return Err(Error::NotConnected);
        }
        self.mux.open(&mut self.tls, class)
    }

    /// All streams that were not forgotten.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> Vec<StreamId> {
        self.mux.streams()
    }

    /// The class of a stream; None if it is unknown.
    pub fn class(&self, id: StreamId) -> Option<Class> {
        self.mux.class(id)
    }

    /// Writes a part of a message, and ends it if `end` and all of `data` was accepted. Returns how
    /// many bytes were accepted; None if nothing could be, and then [`Event::Writable`] follows.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is reset, finished or unknown, or the connection closed.
    pub fn write(
        &mut self,
        id: StreamId,
        data: &[u8],
        end: bool,
    ) -> Result<Option<usize>, StreamError> {
        self.mux.write(&mut self.tls, id, data, end)
    }

    /// Says that no more messages follow on this stream from this side; never blocks, and repeating
    /// it does nothing. A message that was begun and not ended cannot be finished: the stream is
    /// reset with code 0 then.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is or gets reset or is unknown, or the connection closed.
    pub fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        self.mux.finish(&mut self.tls, id)
    }

    /// Aborts both directions of a stream and drops what had arrived. Unknown streams are ignored.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        self.mux.reset(&mut self.tls, id, code);
    }

    /// The code with which a direction of a stream was aborted, by either side; None if neither was, or the
    /// stream is unknown.
    pub fn reset_code(&self, id: StreamId) -> Option<u64> {
        self.mux.reset_code(id)
    }

    /// Reads bytes of one message into `buf`, never beyond its end.
    ///
    /// # Errors
    /// [`StreamError`] if the stream is reset or unknown, or the connection was closed and all that
    /// had arrived was read.
    pub fn read(&mut self, id: StreamId, buf: &mut [u8]) -> Result<Read, StreamError> {
        self.mux.read(id, buf)
    }

    /// As [`Self::read`], but appends the bytes to `buf`, at most `max` of them.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_to(
        &mut self,
        id: StreamId,
        buf: &mut Vec<u8>,
        max: usize,
    ) -> Result<Read, StreamError> {
        self.mux.read_to(id, buf, max)
    }

    /// Moves all that has come on a stream to `inbox`, if that is empty: to be read without this
    /// connection. What was read from it is to be told with [`Self::release`]. `beside` is the memory, in bytes, that the
    /// reader has for what it read before, as of a message that is not whole yet.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn take(
        &mut self,
        id: StreamId,
        inbox: &mut Inbox,
        beside: usize,
    ) -> Result<Taken, StreamError> {
        self.mux.take(id, inbox, beside)
    }

    /// So much of what was taken from a stream was read (see [`Inbox::take_freed`]), so that the peer
    /// may send as much again. Unknown streams are ignored.
    pub fn release(&mut self, id: StreamId, freed: u64) {
        self.mux.release(id, freed);
    }

    /// The owner of a stream is done with it: resets it with code 0 if either direction is still
    /// open, and frees its state.
    pub fn forget(&mut self, id: StreamId) {
        self.mux.forget(&mut self.tls, id);
    }
}

impl Connection {
    fn alive(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn stage(&self) -> Stage {
        match self.peer_framing {
            Some(_) => Stage::Open,
            None if self.tls.flight_seen() => Stage::Handshake,
            None => Stage::Silent,
        }
    }

    /// Whether frames may be written. The server says nothing before the client's HELLO, which
    /// tells it how to pad.
    fn may_speak(&self) -> bool {
        let ready =
            if self.client { self.tls.is_established() } else { self.peer_framing.is_some() };
        ready && !self.closed && self.failed.is_none()
    }

    fn receive_records(&mut self, now: Instant, input: &mut [u8]) -> Result<usize, Error> {
        let mut used = 0;
        while !self.peer_ended {
            let Some(length) = record::length(&input[used..])? else { return Ok(used) };
            let record = &mut input[used..used + length];
            used += length;
            self.liveness.heard(now);
            match self.tls.receive(record)? {
                Incoming::Nothing => {}
                Incoming::Established => self.on_established(),
                Incoming::Data(content) => self.on_frames(now, content)?,
                Incoming::Closed => self.on_end(),
            }
        }
        // "Any data received after a closure alert ... MUST be ignored" (RFC 8446 section 6.1).
        Ok(input.len())
    }

    fn on_established(&mut self) {
        if self.client {
            self.greet();
        }
    }

    /// The first frame of this side; the round trip is measured with it.
    fn greet(&mut self) {
        let block = match self.tls.framing() {
            Framing::Auto => 0,
            Framing::Block(length) => u64::from(length),
        };
        let (min, max) = (u64::from(*WIRE_VERSIONS.start()), u64::from(*WIRE_VERSIONS.end()));
        put_control(&mut self.tls, &Frame::Hello { min, max, block });
        self.liveness.want_ping();
        self.mux.push_event(Event::Connected);
    }

    fn on_frames(&mut self, now: Instant, content: &[u8]) -> Result<(), Error> {
        let mut rest = content;
        while !rest.is_empty() && !self.closed {
            let frame = Frame::take(&mut rest)?;
            if self.peer_framing.is_none() {
                self.on_hello(&frame)?;
                continue;
            }
            match frame {
                Frame::Data { stream, flags, bytes } => self.mux.on_data(stream, flags, bytes)?,
                Frame::Window { stream, limit } => self.mux.on_window(stream, limit)?,
                Frame::Reset { stream, code } => self.mux.on_reset(stream, code)?,
                Frame::Ping(token) => self.pong = Some(token),
                Frame::Pong(token) => {
                    self.liveness.pong(token, now)?;
                    self.mux.pace().rtt = self.liveness.rtt();
                }
                Frame::Hello { .. } => return Err(Error::Protocol("a second HELLO")),
                Frame::Close { code, reason } => self.on_close(code, reason),
            }
        }
        Ok(())
    }

    fn on_hello(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let (min, max, block) = match *frame {
            Frame::Hello { min, max, block } => (min, max, block),
            // A server that speaks no version in common says only this.
            Frame::Close { code, reason } => {
                self.on_close(code, reason);
                return Ok(());
            }
            _ => return Err(Error::Protocol("no HELLO at the start")),
        };
        let framing = match block {
            0 => Framing::Auto,
            _ => u16::try_from(block)
                .ok()
                .and_then(|length| Framing::block(length).ok())
                .ok_or(Error::Protocol("a block length out of bounds"))?,
        };
        self.peer_framing = Some(framing);
        self.tls.set_silent(false);
        if !self.client && self.tls.framing() == Framing::Auto {
            self.tls.set_framing(framing);
        }
        let (lowest, highest) =
            (u64::from(*WIRE_VERSIONS.start()), u64::from(*WIRE_VERSIONS.end()));
        if min > max || max < lowest || min > highest {
            return Err(Error::Version { min, max });
        }
        self.version = u32::try_from(max.min(highest)).unwrap_or(*WIRE_VERSIONS.start());
        if !self.client {
            self.greet();
        }
        Ok(())
    }

    /// The peer closes: the answer is close_notify, and nothing else follows.
    fn on_close(&mut self, code: u64, reason: &str) {
        self.tls.close_notify();
        self.shut(code, reason, true);
    }

    fn on_end(&mut self) {
        self.peer_ended = true;
        if !self.closed {
            self.on_close(Close::DONE, "");
        }
    }

    fn shut(&mut self, code: u64, reason: &str, by_peer: bool) {
        self.closed = true;
        self.mux.close();
        let close = Close { code, reason: reason.to_owned(), by_peer };
        self.mux.push_event(Event::Closed(close));
    }

    /// Writes CLOSE, if frames may be written, and close_notify.
    fn say_close(&mut self, code: u64, reason: &str) {
        /// Bytes in front of the text: type, code, length.
        const HEAD: usize = 1 + 8 + 2;
        if self.may_speak() {
            let reason = cut(reason, MAX_REASON.min(self.tls.capacity() - HEAD));
            self.tls.room(HEAD + reason.len());
            Frame::Close { code: code.min(varint::MAX), reason }.put(self.tls.content());
        }
        self.tls.close_notify();
    }

    /// Notes the error that ends the connection, and tells the peer.
    fn fail(&mut self, error: Error) -> Error {
        match &error {
            Error::Protocol(_) => self.say_close(Close::PROTOCOL, &error.to_string()),
            Error::Flood(_) => self.say_close(Close::FLOOD, &error.to_string()),
            Error::Version { .. } => self.say_close(Close::VERSION, &error.to_string()),
            _ => self.tls.alert(&error),
        }
        self.mux.close();
        self.failed = Some(error.clone());
        error
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("client", &self.client)
            .field("peer", &self.peer())
            .field("framing", &self.framing())
            .field("failed", &self.failed)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

/// The longest prefix of `text` of at most `max` bytes.
fn cut(text: &str, max: usize) -> &str {
    let fits = |&end: &usize| text.is_char_boundary(end);
    &text[..(0..=max.min(text.len())).rev().find(fits).unwrap_or(0)]
}
