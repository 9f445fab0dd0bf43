//! The TLS 1.3 handshake by rustls, until this crate takes over the record layer.

use levada_core::Identity;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{
    CertificateError, CommonState, ConnectionTrafficSecrets, HandshakeKind, Tls13CipherSuite,
};
use std::sync::Arc;

use crate::config::ALPN;
use crate::exporter::{Capture, Exporter};
use crate::record::{CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, HEADER};
use crate::verifier::{WrongKey, identity};
use crate::{ClientConfig, Error, ServerConfig};

/// The most handshake bytes that a peer may send; a conforming one sends less than 4 KiB.
const MAX_INPUT: usize = 64 * 1024;

/// A handshake in progress.
pub struct Handshake {
    side: Side,
    capture: Arc<Capture>,
    expected: Option<Identity>,
    /// Records that rustls has not consumed. It decrypts them in place and leaves fragments here.
    input: Vec<u8>,
    received: usize,
    /// The plaintext part of the handshake is over: a handshake message in the clear was injected
    /// on the path.
    plaintext_done: bool,
    flight_seen: bool,
    /// The protocol that must have been negotiated in ALPN.
    protocol: &'static [u8],
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The results of a complete handshake.
pub struct Established {
    /// The peer, which has proved its key.
    pub peer: Identity,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// Derives keying material from this connection.
    pub exporter: Exporter,
    /// Later traffic secrets, and the ticket store.
    pub keys: Keys,
    /// The sequence number and the secrets for records of this side.
    pub seal: (u64, ConnectionTrafficSecrets),
    /// The same for records of the peer.
    pub open: (u64, ConnectionTrafficSecrets),
}

/// The part of rustls that is used after the handshake: later traffic secrets, and the ticket
/// store.
pub enum Keys {
    /// The keys of a client.
    Client(KernelConnection<ClientConnectionData>),
    /// The keys of a server.
    Server(KernelConnection<ServerConnectionData>),
}

enum Step {
    Again,
    Blocked,
    Complete,
}

impl Handshake {
    /// A client that accepts `expected` only, or any server. Appends the first flight to `out`.
    pub(crate) fn client(
        config: &ClientConfig,
        expected: Option<Identity>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let capture = Arc::new(Capture::default());
        let (tls, name) = config.instance(expected.as_ref(), capture.clone())?;
        Self::client_with(tls, name, capture, expected, ALPN, out)
    }

    /// Begins the handshake of a client with a configuration whose key log is `capture`. Appends
    /// the first flight to `out`.
    ///
    /// # Errors
    /// [`Error::Handshake`] if rustls rejects the configuration.
    pub fn client_with(
        tls: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
        capture: Arc<Capture>,
        expected: Option<Identity>,
        protocol: &'static [u8],
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let connection = UnbufferedClientConnection::new(tls, name).map_err(translate)?;
        let mut handshake = Self::new(Side::Client(connection), capture, expected, protocol);
        handshake.advance(out)?;
        Ok(handshake)
    }

    /// Begins the handshake of a server that accepts any client which proves its key.
    ///
    /// # Errors
    /// [`Error::Handshake`] if rustls rejects the configuration.
    pub fn server(config: &ServerConfig) -> Result<Self, Error> {
        let capture = Arc::new(Capture::default());
        let tls = config.instance(capture.clone())?;
        Self::server_with(tls, capture, ALPN)
    }

    /// Begins the handshake of a server with a configuration whose key log is `capture`.
    ///
    /// # Errors
    /// [`Error::Handshake`] if rustls rejects the configuration.
    pub fn server_with(
        tls: Arc<rustls::ServerConfig>,
        capture: Arc<Capture>,
        protocol: &'static [u8],
    ) -> Result<Self, Error> {
        let connection = UnbufferedServerConnection::new(tls).map_err(translate)?;
        Ok(Self::new(Side::Server(connection), capture, None, protocol))
    }

    fn new(
        side: Side,
        capture: Arc<Capture>,
        expected: Option<Identity>,
        protocol: &'static [u8],
    ) -> Self {
        Self {
            side,
            capture,
            expected,
            input: Vec::new(),
            received: 0,
            plaintext_done: false,
            flight_seen: false,
            protocol,
        }
    }

    /// The exporter of the connection, as soon as the secret exists: on the server before the
    /// client has proved its key.
    ///
    /// # Errors
    /// [`Error::Internal`] before that.
    pub fn exporter(&self) -> Result<Exporter, Error> {
        let suite = self.suite()?;
        self.capture.exporter(suite).ok_or(Error::Internal("no exporter secret"))
    }

    /// Whether an earlier session is resumed; known when the server has answered.
    pub fn is_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The cipher suite that the server has chosen.
    ///
    /// # Errors
    /// [`Error::Internal`] before that.
    pub fn suite(&self) -> Result<&'static Tls13CipherSuite, Error> {
        let suite = self.common().negotiated_cipher_suite().and_then(|suite| suite.tls13());
        suite.ok_or(Error::Internal("not TLS 1.3"))
    }

    /// Whether the peer's first flight was received in full.
    pub(crate) fn flight_seen(&self) -> bool {
        self.flight_seen
    }

    /// Takes one whole record and appends the answer to `out`; true if the handshake is complete.
    /// It takes one record at a time, so that rustls never gets a record that follows the
    /// handshake.
    ///
    /// # Errors
    /// [`Error`] if the peer broke the protocol, or sent an alert; `out` then ends with an alert
    /// for it.
    pub fn receive(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        // "legacy_record_version MUST be set to 0x0303 for all records … other than an initial
        // ClientHello" (RFC 8446 section 5.1), where it is 0x0301. Nothing authenticates these
        // bytes, so a change on the path is detected only here.
        let initial = self.received == 0 && matches!(self.side, Side::Server(_));
        if record.get(2) != Some(if initial { &1 } else { &3 }) {
            return Err(Error::Record("an unknown record version"));
        }
        // Only the first message is in the clear (section 2), in one record or more. Nothing else
        // checks the outer type of what follows.
        self.plaintext_done |= match self.side {
            Side::Client(_) => record[0] != HANDSHAKE,
            // After a HelloRetryRequest a client sends a second ClientHello, behind a
            // change_cipher_spec.
            Side::Server(_) => record[0] == DATA,
        };
        if self.plaintext_done && record[0] == HANDSHAKE {
            return Err(Error::Record("a handshake message in the clear"));
        }
        // "… the single byte value 0x01 … any other change_cipher_spec value … MUST abort the
        // handshake" (section 5).
        if record[0] == CHANGE_CIPHER_SPEC && record[HEADER..] != [1] {
            return Err(Error::Record("a change of cipher spec with another value"));
        }
        self.received += record.len();
        if self.received > MAX_INPUT {
            return Err(Error::Flood("a handshake of more than 64 KiB"));
        }
        self.input.extend_from_slice(record);
        let before = out.len();
        let complete = self.advance(out)?;
        self.plaintext_done |= any_sealed(&out[before..]);
        self.flight_seen |= complete || out.len() > before;
        Ok(complete)
    }

    fn advance(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            match self.step(out) {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return Ok(false),
                Ok(Step::Complete) => return Ok(true),
                Err(error) => {
                    self.flush_alert(out);
                    return Err(translate(error));
                }
            }
        }
    }

    fn step(&mut self, out: &mut Vec<u8>) -> Result<Step, rustls::Error> {
        let (discard, step) = match &mut self.side {
            Side::Client(side) => one_step(side.process_tls_records(&mut self.input), out),
            Side::Server(side) => one_step(side.process_tls_records(&mut self.input), out),
        };
        self.input.drain(..discard);
        match step? {
            // A server may write before the client has proved its key; the handshake is not
            // complete then.
            Step::Complete if self.common().is_handshaking() => Ok(Step::Blocked),
            step => Ok(step),
        }
    }

    /// Writes the alert that rustls has queued after an error. It stops there, because rustls would
    /// fail again on the rejected input.
    fn flush_alert(&mut self, out: &mut Vec<u8>) {
        while self.common().wants_write() && self.step(out).is_ok() {}
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Client(side) => side,
            Side::Server(side) => side,
        }
    }

    /// The peer, which has proved its key and speaks the protocol. Only after [`Self::receive`]
    /// returned true.
    ///
    /// # Errors
    /// [`Error::WrongPeer`], or [`Error::Handshake`] if the peer speaks another protocol.
    pub fn peer(&self) -> Result<Identity, Error> {
        if !self.input.is_empty() {
            return Err(Error::Record("more bytes after the end of the handshake"));
        }
        let common = self.common();
        if common.alpn_protocol() != Some(self.protocol) {
            let wanted = String::from_utf8_lossy(self.protocol);
            return Err(Error::Handshake(format!("the peer does not speak {wanted}")));
        }
        let certificates = common.peer_certificates().unwrap_or_default();
        let peer = certificates.first().and_then(|key| identity(key));
        let peer = peer.ok_or(Error::Internal("a peer without a key"))?;
        // A resumption calls no verifier, so the key is always compared here.
        if let Some(expected) = self.expected
            && expected != peer
        {
            return Err(Error::WrongPeer { expected, presented: peer });
        }
        Ok(peer)
    }

    /// Takes the keys out of rustls. Only after [`Self::receive`] returned true.
    ///
    /// # Errors
    /// As [`Self::peer`].
    pub fn finish(self) -> Result<Established, Error> {
        let peer = self.peer()?;
        let resumed = self.is_resumed();
        let exporter = self.exporter()?;
        let (secrets, keys) = match self.side {
            Side::Client(side) => {
                let (secrets, keys) = side.dangerous_into_kernel_connection().map_err(translate)?;
                (secrets, Keys::Client(keys))
            }
            Side::Server(side) => {
                let (secrets, keys) = side.dangerous_into_kernel_connection().map_err(translate)?;
                (secrets, Keys::Server(keys))
            }
        };
        Ok(Established { peer, resumed, exporter, keys, seal: secrets.tx, open: secrets.rx })
    }
}

impl Keys {
    /// The next secret for sealing (RFC 8446 section 7.2).
    pub(crate) fn next_seal(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(keys) => keys.update_tx_secret(),
            Self::Server(keys) => keys.update_tx_secret(),
        }
        .map_err(translate)
    }

    /// The next secret for opening.
    pub(crate) fn next_open(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(keys) => keys.update_rx_secret(),
            Self::Server(keys) => keys.update_rx_secret(),
        }
        .map_err(translate)
    }

    /// Stores a ticket; `body` is the message without its header.
    ///
    /// # Errors
    /// [`Error::Record`] at a server, [`Error::Handshake`] if the ticket is malformed.
    pub fn ticket(&mut self, body: &[u8]) -> Result<(), Error> {
        match self {
            Self::Client(keys) => keys.handle_new_session_ticket(body).map_err(translate),
            Self::Server(_) => Err(Error::Record("a ticket from a client")),
        }
    }
}

/// Performs the step that rustls requests. Returns how many input bytes to discard, and the result.
fn one_step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let step = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(encode) => append(encode, out),
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Step::Again
        }
        ConnectionState::WriteTraffic(_) => Step::Complete,
        _ => Step::Blocked,
    });
    (status.discard, step)
}

fn append<Data>(mut encode: EncodeTlsData<'_, Data>, out: &mut Vec<u8>) -> Step {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(size)) = encode.encode(&mut []) {
        out.resize(start + size.required_size, 0);
        if encode.encode(&mut out[start..]).is_err() {
            out.truncate(start);
        }
    }
    Step::Again
}

fn translate(error: rustls::Error) -> Error {
    match &error {
        rustls::Error::AlertReceived(alert) => Error::Alert(u8::from(*alert)),
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<WrongKey>() {
                Some(&WrongKey { expected, presented }) => Error::WrongPeer { expected, presented },
                None => Error::Handshake(error.to_string()),
            }
        }
        _ => Error::Handshake(error.to_string()),
    }
}

/// Whether one of these whole records, written by rustls, is encrypted.
fn any_sealed(mut records: &[u8]) -> bool {
    while let Some(&[kind, _, _, high, low]) = records.first_chunk::<HEADER>() {
        if kind == DATA {
            return true;
        }
        let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
        records = records.get(length..).unwrap_or_default();
    }
    false
}
