//! A TLS 1.3 connection that carries bytes: the handshake by rustls, then the records of this
//! crate.

use levada_core::{Framing, Identity};

use crate::exporter::Exporter;
use crate::handshake::{Established, Handshake, Keys};
use crate::output::Output;
use crate::record::{ALERT, DATA, HANDSHAKE, RecordKey};
use crate::{ClientConfig, Error, ServerConfig};

/// The longest message after the handshake, in bytes: tickets and key updates are short.
const MAX_MESSAGE: usize = 16 * 1024;
/// How many tickets a server may send; rustls sends two.
const MAX_TICKETS: u32 = 16;
/// How many empty records, or key updates, the peer may send in a row.
const MAX_EMPTY_RUN: u32 = 32;

/// The type of a message with a ticket (RFC 8446 section 4).
pub const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The alert that ends a connection (RFC 8446 section 6.1).
pub const CLOSE_NOTIFY: u8 = 0;

/// A TLS connection, independent of the content of its records.
pub(crate) struct Tls {
    handshake: Option<Box<Handshake>>,
    session: Option<Session>,
    output: Output,
    records_per_key: u64,
    /// The peer requested a key update; due before the next record (RFC 8446 section 4.6.3).
    update_due: bool,
    /// No record may be sealed yet, because the peer's block length is not known.
    silent: bool,
    /// The closing alert of this side was written: no record may follow it.
    ended: bool,
}

struct Session {
    peer: Identity,
    resumed: bool,
    exporter: Exporter,
    keys: Keys,
    key: RecordKey,
    /// The received part of an incomplete handshake message.
    message: Vec<u8>,
    tickets: u32,
    empty_run: u32,
    update_run: u32,
}

/// The result of receiving one record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    /// TLS itself has handled it.
    Handled,
    /// The handshake is complete: keys and peer are set.
    Established,
    /// Application data.
    Data(&'a [u8]),
    /// An authenticated close: the peer sends nothing more.
    Closed,
}

impl Tls {
    /// A client; its first flight is pending at once.
    pub(crate) fn client(config: &ClientConfig, expected: Option<Identity>) -> Result<Self, Error> {
        let mut output = Output::default();
        let handshake = Handshake::client(config, expected, output.raw())?;
        Ok(Self::new(handshake, output))
    }

    /// A server.
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, Error> {
        Ok(Self::new(Handshake::server(config)?, Output::default()))
    }

    fn new(handshake: Handshake, output: Output) -> Self {
        let handshake = Some(Box::new(handshake));
        Self {
            handshake,
            session: None,
            output,
            records_per_key: 1 << 23,
            update_due: false,
            silent: false,
            ended: false,
        }
    }

    /// How many records are sealed under one key.
    pub(crate) fn set_records_per_key(&mut self, records: u64) {
        // AES-GCM allows 2^24 (RFC 8446 section 5.5); the update itself is one more.
        self.records_per_key = records.clamp(1, 1 << 23);
    }

    /// See [`Output::set_framing`].
    pub(crate) fn set_framing(&mut self, framing: Framing) {
        self.output.set_framing(framing);
    }

    /// Sets whether alerts and key updates are suppressed. A suppressed alert is dropped, a
    /// suppressed key update stays due.
    pub(crate) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    pub(crate) fn framing(&self) -> Framing {
        self.output.framing()
    }

    pub(crate) fn peer(&self) -> Option<Identity> {
        self.session.as_ref().map(|session| session.peer)
    }

    pub(crate) fn resumed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.resumed)
    }

    pub(crate) fn is_established(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the peer's first flight was received in full.
    pub(crate) fn flight_seen(&self) -> bool {
        self.handshake.as_ref().is_none_or(|handshake| handshake.flight_seen())
    }

    pub(crate) fn export(&self, label: &str, context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::NotConnected)?;
        session.exporter.export(label, context, out)
    }

    /// Takes one whole record (see [`crate::record::length`]) and decrypts it in place.
    pub(crate) fn receive<'a>(&mut self, record: &'a mut [u8]) -> Result<Received<'a>, Error> {
        self.output.fault()?;
        let Some(session) = &mut self.session else { return self.receive_handshake(record) };
        let (kind, content) = session.key.open(record)?;
        if kind != HANDSHAKE && !session.message.is_empty() {
            return Err(Error::Record("a handshake message was interrupted"));
        }
        match kind {
            DATA => session.count_data(content).map(|()| Received::Data(content)),
            HANDSHAKE => {
                self.update_due |= session.receive_messages(content)? && !self.ended;
                Ok(Received::Handled)
            }
            ALERT => receive_alert(content),
            _ => Err(Error::Record("an unknown type")),
        }
    }

    fn receive_handshake<'a>(&mut self, record: &[u8]) -> Result<Received<'a>, Error> {
        let handshake = self.handshake.as_mut().ok_or(Error::Closed)?;
        if !handshake.receive(record, self.output.raw())? {
            return Ok(Received::Handled);
        }
        let handshake = self.handshake.take().ok_or(Error::Closed)?;
        let Established { peer, resumed, exporter, keys, seal, open } = handshake.finish()?;
        self.output.set_key(RecordKey::new(seal)?);
        self.session = Some(Session {
            peer,
            resumed,
            exporter,
            keys,
            key: RecordKey::new(open)?,
            message: Vec::new(),
            tickets: 0,
            empty_run: 0,
            update_run: 0,
        });
        Ok(Received::Established)
    }

    /// Opens a record if none is open, or if the open one has room for less than `least` bytes.
    /// Returns the room in bytes. `least` is at most [`Self::capacity`].
    pub(crate) fn room(&mut self, least: usize) -> usize {
        let room = self.output.room();
        if room >= least {
            return room;
        }
        self.output.seal(DATA);
        if self.update_due || self.output.sequence() >= self.records_per_key {
            self.update_key(false);
        }
        self.output.begin();
        self.output.room()
    }

    /// See [`Output::reserve`].
    pub(crate) fn reserve(&mut self, length: usize) {
        self.output.reserve(length);
    }

    /// See [`Output::memory`].
    pub(crate) fn memory(&self) -> usize {
        self.output.memory()
    }

    /// The most bytes that [`Self::room`] can return.
    pub(crate) fn capacity(&self) -> usize {
        self.output.capacity()
    }

    /// Where the content of the open record is written; at most what [`Self::room`] returned.
    pub(crate) fn content(&mut self) -> &mut Vec<u8> {
        self.output.content()
    }

    /// Updates the sending key, and requests the same of the peer if `request`.
    pub(crate) fn update_key(&mut self, request: bool) {
        let Some(session) = &mut self.session else { return };
        self.update_due = false;
        let key = match session.keys.next_seal().and_then(RecordKey::new) {
            Ok(key) => key,
            Err(fault) => return self.output.set_fault(fault),
        };
        self.put_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, u8::from(request)]);
        self.output.set_key(key);
    }

    /// Appends a separate record.
    pub(crate) fn put_record(&mut self, kind: u8, content: &[u8]) {
        self.output.seal(DATA);
        self.output.begin();
        self.output.content().extend_from_slice(content);
        self.output.seal(kind);
    }

    /// Writes close_notify, which authenticates the end of the data (RFC 8446 section 6.1).
    pub(crate) fn close_notify(&mut self) {
        self.end(&[1, CLOSE_NOTIFY]);
    }

    /// Writes the alert for `error`, if TLS defines one. If the handshake failed, rustls has
    /// written its own alert.
    pub(crate) fn alert(&mut self, error: &Error) {
        const UNEXPECTED_MESSAGE: u8 = 10;
        const BAD_RECORD_MAC: u8 = 20;
        const INTERNAL_ERROR: u8 = 80;
        let code = match error {
            Error::Forged => BAD_RECORD_MAC,
            Error::Record(_) | Error::Flood(_) => UNEXPECTED_MESSAGE,
            Error::Internal(_) => INTERNAL_ERROR,
            _ => return,
        };
        self.end(&[2, code]);
    }

    fn end(&mut self, alert: &[u8]) {
        if self.is_established() && !self.ended {
            if !self.silent {
                self.put_record(ALERT, alert);
            }
            (self.ended, self.update_due) = (true, false);
        }
    }

    /// How many bytes are pending.
    pub(crate) fn pending(&self) -> usize {
        self.output.len()
    }

    /// Whether [`Self::transmit`] would return bytes.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.update_is_due() || self.pending() > 0
    }

    /// Seals the open record and takes all bytes; `out` becomes the next buffer.
    pub(crate) fn transmit(&mut self, out: &mut Vec<u8>) {
        self.output.seal(DATA);
        if self.update_is_due() {
            self.update_key(false);
        }
        self.output.take(out);
    }

    fn update_is_due(&self) -> bool {
        self.update_due && !self.silent
    }
}

impl Session {
    fn count_data(&mut self, content: &[u8]) -> Result<(), Error> {
        if !content.is_empty() {
            (self.empty_run, self.update_run) = (0, 0);
            return Ok(());
        }
        self.empty_run += 1;
        if self.empty_run > MAX_EMPTY_RUN {
            return Err(Error::Flood("empty records"));
        }
        Ok(())
    }

    /// Handles messages after the handshake, which may span records (RFC 8446 section 5.1). Returns
    /// true if the peer requests a key update.
    fn receive_messages(&mut self, content: &[u8]) -> Result<bool, Error> {
        // "Zero-length fragments of Handshake types ... MUST NOT be sent" (RFC 8446 section 5.1).
        if content.is_empty() {
            return Err(Error::Record("an empty handshake record"));
        }
        if self.message.len() + content.len() > MAX_MESSAGE + 4 {
            return Err(Error::Flood("a long message after the handshake"));
        }
        let mut input = std::mem::take(&mut self.message);
        input.extend_from_slice(content);
        let mut rest = input.as_slice();
        let mut update = false;
        while let Some((kind, body)) = take_message(&mut rest)? {
            update |= self.receive_message(kind, body, rest.is_empty())?;
        }
        self.message = rest.to_vec();
        Ok(update)
    }

    fn receive_message(&mut self, kind: u8, body: &[u8], last: bool) -> Result<bool, Error> {
        match kind {
            NEW_SESSION_TICKET => {
                self.tickets += 1;
                if self.tickets > MAX_TICKETS {
                    return Err(Error::Flood("tickets"));
                }
                self.keys.ticket(body).map(|()| false)
            }
            // "Handshake messages MUST NOT span key changes" (RFC 8446 section 5.1).
            KEY_UPDATE if last => self.receive_key_update(body),
            _ => Err(Error::Record("an unexpected message after the handshake")),
        }
    }

    fn receive_key_update(&mut self, body: &[u8]) -> Result<bool, Error> {
        let requested = match body {
            [0] => false,
            [1] => true,
            _ => return Err(Error::Record("a malformed key update")),
        };
        self.update_run += 1;
        if self.update_run > MAX_EMPTY_RUN {
            return Err(Error::Flood("key updates"));
        }
        self.key = RecordKey::new(self.keys.next_open()?)?;
        Ok(requested)
    }
}

/// Takes the first whole message (RFC 8446 section 4) from `rest`: its type and body.
pub fn take_message<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, Error> {
    let Some((&[kind, high, mid, low], tail)) = rest.split_first_chunk() else { return Ok(None) };
    let length = (usize::from(high) << 16) | (usize::from(mid) << 8) | usize::from(low);
    if length > MAX_MESSAGE {
        return Err(Error::Flood("a long message after the handshake"));
    }
    let Some((body, tail)) = tail.split_at_checked(length) else { return Ok(None) };
    *rest = tail;
    Ok(Some((kind, body)))
}

fn receive_alert<'a>(content: &[u8]) -> Result<Received<'a>, Error> {
    match content {
        [_, CLOSE_NOTIFY] => Ok(Received::Closed),
        [_, code] => Err(Error::Alert(*code)),
        _ => Err(Error::Record("a malformed alert")),
    }
}
