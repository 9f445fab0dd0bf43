//! Connections: established by the client, accepted by the server, shared by their streams.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::{Class, ClientConfig, Connection as Channel, Options, ServerConfig};
use levada_core::{Framing, Identity};
use levada_transport::Transport;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::driver::Driver;
use crate::shared::{Handle, Shared};
use crate::{Budget, SessionError, Stream};

/// Time limit for a peer's first whole record.
const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// The initial capacity for the first record, in bytes: more than the first flight of a conforming
/// client.
const FIRST_FLIGHT: usize = 2048;
/// Type, version and length (RFC 8446 section 5.1), and the most bytes behind them (5.2).
const RECORD_HEADER: usize = 5;
const RECORD_PAYLOAD: usize = 16384 + 256;

/// An encrypted connection to one peer. Clones share it; it closes when the last clone and the last
/// stream are dropped.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
    peer: Identity,
    resumed: bool,
}

/// Connects over `transport` to the peer with the key `expected`. `None` accepts any peer, and is
/// only for temporary identities, because any server learns the client's key.
///
/// # Errors
/// [`SessionError::WrongPeer`] before this identity is sent; otherwise the failure of the transport
/// or the handshake. The channel sets the time limits of the handshake.
pub async fn connect(
    transport: Box<dyn Transport>,
    config: &ClientConfig,
    expected: Option<Identity>,
    options: Options,
) -> Result<Connection, SessionError> {
    let channel = Channel::client(config, expected, options, Instant::now())?;
    establish(transport, channel, Vec::new(), None).await
}

/// Accepts a connection over `transport`. Any identity may finish the handshake; the caller
/// authorises it, on resumed connections as on full ones.
///
/// # Errors
/// The failure of the transport or the handshake; the peer gets an alert or a CLOSE if the protocol
/// allows it.
pub async fn accept(
    transport: Box<dyn Transport>,
    config: &ServerConfig,
    options: Options,
) -> Result<Connection, SessionError> {
    first_record(transport).await?.accept(config, options).await
}

/// An incoming connection whose first record was received; no cryptography was done for it yet.
pub struct Incoming {
    transport: Box<dyn Transport>,
    bytes: Vec<u8>,
    since: Instant,
    budget: Option<(Arc<Budget>, IpAddr)>,
}

/// An [`Incoming`] in parts.
pub struct IncomingParts {
    /// Carries the connection.
    pub transport: Box<dyn Transport>,
    /// The bytes that were read from it.
    pub received: Vec<u8>,
    /// The budget for the connection's memory, and the source that it counts under.
    pub budget: Option<(Arc<Budget>, IpAddr)>,
}

/// Waits for a peer's first record, which holds the whole first flight of a conforming client.
/// Until then a peer costs its socket and a small buffer, and no cryptography.
///
/// # Errors
/// The failure of the transport; [`levada_channel::Error::HandshakeTimeout`] after 5 s.
pub async fn first_record(mut transport: Box<dyn Transport>) -> Result<Incoming, SessionError> {
    let since = Instant::now();
    let read = timeout(FIRST_RECORD_TIMEOUT, read_record(transport.as_mut())).await;
    let bytes = read.map_err(|_| levada_channel::Error::HandshakeTimeout)??;
    Ok(Incoming { transport, bytes, since, budget: None })
}

/// Reads one whole record, or the header of an invalid one.
async fn read_record(transport: &mut dyn Transport) -> Result<Vec<u8>, SessionError> {
    let mut bytes = Vec::with_capacity(FIRST_FLIGHT);
    let mut wanted = RECORD_HEADER;
    while bytes.len() < wanted {
        bytes.reserve_exact(wanted - bytes.len());
        let read = transport.read_buf(&mut bytes).await;
        if read.map_err(|error| SessionError::Transport(error.to_string()))? == 0 {
            return Err(levada_channel::Error::Truncated.into());
        }
        if let Some(&[_, _, _, high, low]) = bytes.first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            // The channel refuses a longer record by its header.
            wanted = RECORD_HEADER + if length <= RECORD_PAYLOAD { length } else { 0 };
        }
    }
    Ok(bytes)
}

impl Incoming {
    /// Counts the connection's memory against `budget`, under `source`, and grants only the
    /// protocol's initial credit, until [`Connection::raise_credit`].
    pub fn bounded(self, budget: &Arc<Budget>, source: IpAddr) -> Self {
        Self { budget: Some((budget.clone(), source)), ..self }
    }

    /// The first byte of the first record, which tells protocols apart.
    pub fn first_byte(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// The connection in parts, for the driver of another protocol.
    pub fn into_parts(self) -> IncomingParts {
        let Self { transport, bytes, budget, .. } = self;
        IncomingParts { transport, received: bytes, budget }
    }

    /// Performs the handshake; see [`accept`].
    ///
    /// # Errors
    /// As [`accept`].
    pub async fn accept(
        self,
        config: &ServerConfig,
        options: Options,
    ) -> Result<Connection, SessionError> {
        let initial_credit_only = options.initial_credit_only || self.budget.is_some();
        // The handshake timeout counts from the start of the connection.
        let channel =
            Channel::server(config, Options { initial_credit_only, ..options }, self.since)?;
        establish(self.transport, channel, self.bytes, self.budget).await
    }
}

/// `received` are bytes of the transport that were read before. If the future is dropped, so is the
/// transport.
async fn establish(
    transport: Box<dyn Transport>,
    channel: Channel,
    received: Vec<u8>,
    budget: Option<(Arc<Budget>, IpAddr)>,
) -> Result<Connection, SessionError> {
    let shared = Shared::new(channel);
    let account = budget.map(|(budget, source)| budget.register(source, &shared));
    let handle = Arc::new(Handle::new(shared.clone()));
    let mut driver = Driver::new(shared.clone(), transport, received, account);
    // In the caller's task: as a task of its own, the driver would have to wake the caller, and
    // would have sent the last flight before the caller's first message.
    poll_fn(|cx| driver.poll_handshake(cx)).await;
    tokio::spawn(driver);
    let state = shared.lock();
    if let Some(error) = &state.ended {
        return Err(error.clone());
    }
    let peer = state.channel.peer().ok_or(levada_channel::Error::NotConnected)?;
    let resumed = state.channel.resumed();
    drop(state);
    Ok(Connection { handle, peer, resumed })
}

impl Connection {
    /// The peer's identity, proved by the handshake (or by the one that was resumed).
    pub fn peer(&self) -> Identity {
        self.peer
    }

    /// Whether the handshake was a resumption.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Whether the connection has not ended.
    pub fn is_open(&self) -> bool {
        self.handle.shared().lock().ended.is_none()
    }

    /// How this side frames what it sends.
    pub fn framing(&self) -> Framing {
        self.handle.shared().lock().channel.framing()
    }

    /// The highest version of the protocol that both ends speak.
    pub fn version(&self) -> u32 {
        self.handle.shared().lock().channel.version()
    }

    /// Raises the receive window of the connection to at least `bytes`, so that unread streams
    /// leave credit to the others. A smaller value than the present one changes nothing.
    pub fn raise_receive_window(&self, bytes: u64) {
        let mut state = self.handle.shared().lock();
        state.channel.raise_receive_window(bytes);
        state.request_transmit();
    }

    /// Lifts the limits on a peer that has proved a right: grants the full credit, and removes the
    /// connection from its [`Budget`]. Repeating it does nothing.
    pub fn raise_credit(&self) {
        let mut state = self.handle.shared().lock();
        state.accounted = false;
        state.channel.raise_credit();
        state.wake_driver();
    }

    /// Whether the connection's memory counts against a [`Budget`], because the peer has not proved
    /// a right.
    pub fn is_bounded(&self) -> bool {
        self.handle.shared().lock().accounted
    }

    /// Keying material for `label`, equal at both ends and bound to this connection (RFC 8446 7.5).
    ///
    /// # Errors
    /// [`SessionError::Channel`] if `out` is longer than the hash can give.
    pub fn export<const N: usize>(&self, label: &str) -> Result<[u8; N], SessionError> {
        let mut out = [0; N];
        self.handle.shared().lock().channel.export(label, b"", &mut out)?;
        Ok(out)
    }

    /// Opens a stream; the frame that announces it leaves with the next transmission.
    ///
    /// # Errors
    /// The error that ended the connection, or [`levada_channel::Error::TooManyStreams`].
    pub fn open(&self, class: Class) -> Result<Stream, SessionError> {
        let mut state = self.handle.shared().lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let id = state.channel.open(class)?;
        Ok(Stream::new(self.handle.clone(), &mut state, id))
    }

    /// The next stream that the peer opens; `None` once the connection has ended.
    pub async fn accept(&self) -> Option<Stream> {
        let opened = self.handle.shared().wait_for(|state| match state.next_opened() {
            Some(id) => Some(Some(Stream::new(self.handle.clone(), state, id))),
            None => state.ended.is_some().then_some(None),
        });
        opened.await
    }

    /// Closes the connection: sends accepted data first, then `code` and `reason` (one line of text
    /// for users), then close_notify.
    pub fn close(&self, code: u64, reason: &str) {
        let mut state = self.handle.shared().lock();
        state.channel.close(code, reason);
        state.dispatch_events();
        state.wake_driver();
    }

    /// Waits until the transport has accepted the last byte of the connection. A process waits for
    /// this after [`Self::close`], before it exits.
    pub async fn flushed(&self) {
        self.handle.shared().wait_for(|state| state.flushed.then_some(())).await;
    }

    /// How many streams are in use at this end.
    pub fn streams(&self) -> usize {
        self.handle.shared().lock().streams
    }

    /// Replaces this side's sending key now, and asks the peer to replace its own (RFC 8446 4.6.3).
    pub fn update_key(&self) {
        let mut state = self.handle.shared().lock();
        state.channel.update_key();
        state.request_transmit();
    }

    /// Waits for the end of the connection and returns its reason.
    pub async fn closed(&self) -> SessionError {
        self.handle.shared().wait_for(|state| state.ended.clone()).await
    }
}
