//! The TLS 1.3 handshake by rustls, up to the moment when records become ours.

use levada_core::Identity;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CertificateError, CommonState, ConnectionTrafficSecrets, HandshakeKind};
use std::sync::Arc;

use crate::config::ALPN;
use crate::exporter::{Capture, Exporter};
use crate::record::{CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, HEADER};
use crate::verifier::{WrongKey, identity};
use crate::{ClientConfig, Error, ServerConfig};

/// The most bytes of handshake that a peer may send; an honest one needs less than 4 KiB.
const MAX_INPUT: usize = 64 * 1024;

/// A handshake under way.
pub(crate) struct Handshake {
    side: Side,
    capture: Arc<Capture>,
    expected: Option<Identity>,
    /// Records not yet consumed by rustls, which decrypts them in place and keeps fragments here.
    input: Vec<u8>,
    received: usize,
    /// From here on a handshake message in the clear was put there by somebody on the way.
    clear_is_over: bool,
    flight_seen: bool,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// What a complete handshake leaves.
pub(crate) struct Established {
    pub(crate) peer: Identity,
    pub(crate) resumed: bool,
    pub(crate) exporter: Exporter,
    pub(crate) keys: Keys,
    pub(crate) seal: (u64, ConnectionTrafficSecrets),
    pub(crate) open: (u64, ConnectionTrafficSecrets),
}

/// What of rustls remains after the handshake: later traffic secrets, and the ticket store.
pub(crate) enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

enum Step {
    Again,
    Blocked,
    Complete,
}

impl Handshake {
    /// A client that accepts `expected` only, or anybody. Its first flight is in `out` at once.
    pub(crate) fn client(
        config: &ClientConfig,
        expected: Option<Identity>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let capture = Arc::new(Capture::default());
        let (tls, name) = config.instance(expected.as_ref(), capture.clone())?;
        let connection = UnbufferedClientConnection::new(tls, name).map_err(translate)?;
        let mut handshake = Self::new(Side::Client(connection), capture, expected);
        handshake.advance(out)?;
        Ok(handshake)
    }

    /// A server that accepts any client which proves its key.
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, Error> {
        let capture = Arc::new(Capture::default());
        let tls = config.instance(capture.clone())?;
        let connection = UnbufferedServerConnection::new(tls).map_err(translate)?;
        Ok(Self::new(Side::Server(connection), capture, None))
    }

    fn new(side: Side, capture: Arc<Capture>, expected: Option<Identity>) -> Self {
        Self {
            side,
            capture,
            expected,
            input: Vec::new(),
            received: 0,
            clear_is_over: false,
            flight_seen: false,
        }
    }

    /// Whether the peer's first flight has come in full.
    pub(crate) fn flight_seen(&self) -> bool {
        self.flight_seen
    }

    /// Takes one whole record and appends the answer to `out`; true if the handshake is complete.
    /// One record at a time, so that rustls never sees a record that is ours to open.
    pub(crate) fn receive(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        // "legacy_record_version MUST be set to 0x0303 for all records … other than an initial
        // ClientHello" (RFC 8446 section 5.1), where it is 0x0301. Nothing authenticates these bytes;
        // whoever changes one is told so all the same.
        let initial = self.received == 0 && matches!(self.side, Side::Server(_));
        if record.get(2) != Some(if initial { &1 } else { &3 }) {
            return Err(Error::Record("of another version"));
        }
        // The first message alone is in the clear (section 2), in one record or more; the outer type of
        // what follows is authenticated by nothing but this.
        self.clear_is_over |= match self.side {
            Side::Client(_) => record[0] != HANDSHAKE,
            // A client that was asked to try again sends a second one, behind a change of cipher spec.
            Side::Server(_) => record[0] == DATA,
        };
        if self.clear_is_over && record[0] == HANDSHAKE {
            return Err(Error::Record("a handshake message in the clear"));
        }
        // "… the single byte value 0x01 … any other change_cipher_spec value … MUST abort the handshake"
        // (section 5).
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
        self.clear_is_over |= any_sealed(&out[before..]);
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
            // A server may write before it knows the client: that is not complete.
            Step::Complete if self.common().is_handshaking() => Ok(Step::Blocked),
            step => Ok(step),
        }
    }

    /// After an error rustls still has the alert that tells the peer. It must not come to look at
    /// its input again, where it trips over what it remembers.
    fn flush_alert(&mut self, out: &mut Vec<u8>) {
        while self.common().wants_write() && self.step(out).is_ok() {}
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Client(side) => side,
            Side::Server(side) => side,
        }
    }

    /// Takes the keys out of rustls. Only after [`Self::receive`] returned true.
    pub(crate) fn finish(self) -> Result<Established, Error> {
        if !self.input.is_empty() {
            return Err(Error::Record("more bytes behind the end of the handshake"));
        }
        let common = self.common();
        if common.alpn_protocol() != Some(ALPN) {
            return Err(Error::Handshake("the peer does not speak levada/1".to_owned()));
        }
        let certificates = common.peer_certificates().unwrap_or_default();
        let peer = certificates.first().and_then(|key| identity(key));
        let peer = peer.ok_or(Error::Internal("a peer without a key"))?;
        // A resumed handshake asks no verifier, so the key is compared here in any case.
        if let Some(expected) = self.expected
            && expected != peer
        {
            return Err(Error::WrongPeer { expected, presented: peer });
        }
        let resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        let suite = common.negotiated_cipher_suite().and_then(|suite| suite.tls13());
        let suite = suite.ok_or(Error::Internal("not TLS 1.3"))?;
        let exporter = self.capture.take(suite).ok_or(Error::Internal("no exporter secret"))?;
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
    pub(crate) fn ticket(&mut self, body: &[u8]) -> Result<(), Error> {
        match self {
            Self::Client(keys) => keys.handle_new_session_ticket(body).map_err(translate),
            Self::Server(_) => Err(Error::Record("a ticket from a client")),
        }
    }
}

/// Does what rustls asks for; how many bytes of the input it is done with comes back too.
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

/// Whether one of these whole records, which rustls has just made, is encrypted.
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
