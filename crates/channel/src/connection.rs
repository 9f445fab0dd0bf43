//! One end of a channel.

mod event;
mod inbound;
mod streams;

use levada_core::{Framing, Identity, WIRE_VERSIONS};
use std::fmt;
use std::time::{Duration, Instant};

pub use event::{Close, Event};

use crate::frame::{Frame, MAX_REASON};
use crate::liveness::{Liveness, Stage};
use crate::mux::{Mux, put_control};
use crate::tls::Tls;
use crate::varint;
use crate::{ClientConfig, Error, Options, ServerConfig};

/// One end of a channel: an encrypted connection to a known identity that carries streams of
/// messages.
///
/// After an error of [`Self::receive`], [`Self::receive_end`] or [`Self::handle_timeout`] the
/// connection is dead; one last [`Self::transmit`] returns the bytes that tell the peer why.
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
    /// The peer's close_notify was received.
    peer_ended: bool,
}

impl Connection {
    /// A client that accepts the peer `expected` only, or any peer if it is None. Without an
    /// expected peer the client shows its identity to any server, so its key must be a temporary
    /// one. The first flight is ready to be transmitted.
    ///
    /// # Errors
    /// [`Error::Internal`] if the TLS library reports an error.
    pub fn client(
        config: &ClientConfig,
        expected: Option<Identity>,
        options: Options,
        now: Instant,
    ) -> Result<Self, Error> {
        Ok(Self::new(true, Tls::client(config, expected)?, &options, now))
    }

    /// A server for one connection from any client.
    ///
    /// # Errors
    /// [`Error::Internal`] if the TLS library reports an error.
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
    /// many bytes they had. The caller keeps the rest and appends to it; a buffer of 17 KiB is
    /// enough.
    ///
    /// # Errors
    /// Any violation in what the peer sent; the connection is dead then.
    pub fn receive(&mut self, now: Instant, input: &mut [u8]) -> Result<usize, Error> {
        self.check_alive()?;
        self.mux.path().now = now;
        let result = self.receive_records(now, input);
        result.map_err(|error| self.fail(error))
    }

    /// The transport has ended.
    ///
    /// # Errors
    /// [`Error::Truncated`] unless either side had closed the connection before.
    pub fn receive_end(&mut self, now: Instant) -> Result<(), Error> {
        self.check_alive()?;
        self.mux.path().now = now;
        if self.closed { Ok(()) } else { Err(self.fail(Error::Truncated)) }
    }

    /// Takes all bytes that wait to be sent. `out` is empty on call; its memory becomes the next
    /// output buffer, so the caller should pass the buffer that it has just emptied.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.mux.path().now = now;
        if self.can_send() {
            if let Some(token) = self.pong.take() {
                put_control(&mut self.tls, &Frame::Pong(token));
            }
            if self.mux.take_rtt_probe() {
                self.liveness.request_ping();
            }
            if let Some(token) = self.liveness.take_ping(now) {
                put_control(&mut self.tls, &Frame::Ping(token));
            }
            self.mux.flush(&mut self.tls);
        }
        if !self.tls.is_established() && self.tls.pending() > 0 {
            self.liveness.on_flight(now);
        }
        self.tls.transmit(out);
        self.mux.transmitted();
    }

    /// The transport has accepted all that [`Self::transmit`] returned. While an interactive stream
    /// is open, bulk data is accepted only after that, so that little of it is queued in front of
    /// interactive data.
    pub fn written(&mut self) {
        self.mux.written();
    }

    /// Whether [`Self::transmit`] would return bytes.
    pub fn wants_transmit(&self) -> bool {
        self.tls.wants_transmit()
            || (self.can_send()
                && (self.pong.is_some() || self.liveness.ping_due() || self.mux.wants_flush()))
    }

    /// The deadline by which to call [`Self::handle_timeout`]. Every other call may change it.
    pub fn timeout(&self) -> Option<Instant> {
        let running = self.failed.is_none() && !self.closed;
        running.then(|| self.liveness.deadline(self.stage()))
    }

    /// Acts on timers that have expired at `now`.
    ///
    /// # Errors
    /// [`Error::HandshakeTimeout`] or [`Error::Idle`]; the connection is dead then.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        self.check_alive()?;
        self.mux.path().now = now;
        if self.closed {
            return Ok(());
        }
        let result = self.liveness.check(self.stage(), now);
        result.map_err(|error| self.fail(error))
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.mux.poll_event()
    }

    /// The peer's proved identity; None until the handshake is complete. It may be set before
    /// [`Event::Connected`].
    pub fn peer(&self) -> Option<Identity> {
        self.tls.peer()
    }

    /// Whether the handshake resumed an earlier one. A resumption calls no verifier, so the caller
    /// must check its policy.
    pub fn resumed(&self) -> bool {
        self.tls.resumed()
    }

    /// The smoothed round-trip time; before the first answer to a PING that of the handshake, which
    /// includes cryptography. None before the handshake is complete.
    pub fn rtt(&self) -> Option<Duration> {
        self.liveness.rtt()
    }

    /// How this side's messages become records; a server adopts the framing of the client's HELLO.
    pub fn framing(&self) -> Framing {
        self.tls.framing()
    }

    /// How the peer's messages become records; None before its HELLO.
    pub fn peer_framing(&self) -> Option<Framing> {
        self.peer_framing
    }

    /// The highest version of the protocol that both sides speak; the lowest of this side before
    /// the peer's HELLO was received.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Raises the receive window of the connection to at least `bytes`; see
    /// [`Options::connection_window`]. A smaller value than the present one changes nothing.
    pub fn raise_receive_window(&mut self, bytes: u64) {
        self.mux.raise_receive_window(bytes);
    }

    /// Grants the peer the credit that [`Options::initial_credit_only`] withheld. Repeating it does
    /// nothing.
    pub fn raise_credit(&mut self) {
        self.mux.raise_credit();
    }

    /// The memory, in bytes, of streams, of unread data, and of data that waits to be sent. What
    /// readers took with [`Self::take`] is counted while the credit is the initial one. Takes time
    /// proportional to the number of streams.
    pub fn memory(&self) -> usize {
        self.mux.memory() + self.tls.memory()
    }

    /// As [`Self::close`], and discards all unread data.
    pub fn abandon(&mut self, code: u64, reason: &str) {
        self.close(code, reason);
        self.mux.abandon();
    }

    /// Exports keying material that only the two ends of this connection share (RFC 8446 section
    /// 7.5): it is the same at both for the same `label`, `context` and length.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before the handshake is complete; [`Error::Internal`] if `out` is
    /// longer than TLS can export, or the label is longer than 249 bytes. The connection stays
    /// open.
    pub fn export(&self, label: &str, context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.tls.export(label, context, out)
    }

    /// Closes the connection in good order, after all data that was accepted for sending. `reason`
    /// is truncated to 256 bytes, or to what one record holds.
    pub fn close(&mut self, code: u64, reason: &str) {
        if self.failed.is_none() && !self.closed {
            self.send_close(code, reason);
            self.set_closed(code, reason, false);
        }
    }

    /// Updates the keys of both directions now. They are also updated automatically; see
    /// [`Options::records_per_key`].
    pub fn update_key(&mut self) {
        if self.can_send() {
            self.tls.update_key(true);
        }
    }
}

impl Connection {
    fn check_alive(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn stage(&self) -> Stage {
        match self.peer_framing {
            Some(_) => Stage::Open,
            None if self.tls.flight_seen() => Stage::Handshake,
            None => Stage::FirstFlight,
        }
    }

    /// Whether frames may be written. The server writes none before the client's HELLO, which sets
    /// the block length to pad to.
    fn can_send(&self) -> bool {
        let ready =
            if self.client { self.tls.is_established() } else { self.peer_framing.is_some() };
        ready && !self.closed && self.failed.is_none()
    }

    fn set_closed(&mut self, code: u64, reason: &str, by_peer: bool) {
        self.closed = true;
        self.mux.close();
        let close = Close { code, reason: reason.to_owned(), by_peer };
        self.mux.push_event(Event::Closed(close));
    }

    /// Writes CLOSE, if frames may be written, and close_notify.
    fn send_close(&mut self, code: u64, reason: &str) {
        /// Bytes before the text: type, code, length.
        const HEAD: usize = 1 + 8 + 2;
        if self.can_send() {
            let reason = truncated(reason, MAX_REASON.min(self.tls.capacity() - HEAD));
            self.tls.room(HEAD + reason.len());
            Frame::Close { code: code.min(varint::MAX), reason }.put(self.tls.content());
        }
        self.tls.close_notify();
    }

    /// Stores the error that ends the connection, and writes it to the peer as CLOSE or as an
    /// alert.
    fn fail(&mut self, error: Error) -> Error {
        match &error {
            Error::Protocol(_) => self.send_close(Close::PROTOCOL, &error.to_string()),
            Error::Flood(_) => self.send_close(Close::FLOOD, &error.to_string()),
            Error::Version { .. } => self.send_close(Close::VERSION, &error.to_string()),
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
fn truncated(text: &str, max: usize) -> &str {
    let fits = |&end: &usize| text.is_char_boundary(end);
    &text[..(0..=max.min(text.len())).rev().find(fits).unwrap_or(0)]
}
