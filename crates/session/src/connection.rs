//! Connections: made by the client, accepted by the server, shared by their streams.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::{Class, ClientConfig, Connection as Channel, Options, ServerConfig};
use levada_core::{Framing, Identity};
use levada_transport::Transport;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::driver::Driver;
use crate::shared::Shared;
use crate::{Budget, SessionError, Stream};

/// How long a peer may take to its first whole record.
const FIRST_RECORD: Duration = Duration::from_secs(5);
/// More than the first flight of an honest client, in bytes.
const FIRST_FLIGHT: usize = 2048;
/// Type, version and length (RFC 8446 section 5.1), and the most bytes behind them (5.2).
const RECORD_HEADER: usize = 5;
const RECORD_PAYLOAD: usize = 16384 + 256;

/// An encrypted connection to one peer. Clones share it; it closes when the last clone and the last
/// stream are gone.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
    peer: Identity,
    resumed: bool,
}

/// Closes the connection when nobody uses it any more.
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.channel.close(0, "");
        state.dispatch_events();
        state.wake_driver();
    }
}

/// Makes a connection over `transport` to the peer with the key `expected`; `None` takes any peer and is
/// only for identities that are thrown away.
///
/// # Errors
/// [`SessionError::WrongPeer`] before anything of this identity is sent; otherwise what failed.
/// Time limits on each stage of the handshake are the channel's.
pub async fn connect(
    transport: Box<dyn Transport>,
    config: &ClientConfig,
    expected: Option<Identity>,
    options: Options,
) -> Result<Connection, SessionError> {
    let channel = Channel::client(config, expected, options, Instant::now())?;
    establish(transport, channel, Vec::new(), None).await
}

/// Accepts a connection over `transport`. Any identity may finish the handshake: what it may do is for the
/// caller to decide, on resumed connections as on full ones.
///
/// # Errors
/// What failed; the peer was told if the protocol allows it.
pub async fn accept(
    transport: Box<dyn Transport>,
    config: &ServerConfig,
    options: Options,
) -> Result<Connection, SessionError> {
    first_record(transport).await?.accept(config, options).await
}

/// Somebody who has connected and begun to speak; nothing was computed for it yet.
pub struct Caller {
    transport: Box<dyn Transport>,
    bytes: Vec<u8>,
    since: Instant,
    budget: Option<(Arc<Budget>, IpAddr)>,
}

/// Waits for a peer's first record, which holds the whole first flight of an honest one. Until it is
/// there, a peer costs its socket and a small buffer, and no cryptography.
///
/// # Errors
/// What failed; [`levada_channel::Error::HandshakeTimeout`] if it takes more than 5 s.
pub async fn first_record(mut transport: Box<dyn Transport>) -> Result<Caller, SessionError> {
    let since = Instant::now();
    let read = timeout(FIRST_RECORD, read_record(transport.as_mut())).await;
    let bytes = read.map_err(|_| levada_channel::Error::HandshakeTimeout)??;
    Ok(Caller { transport, bytes, since, budget: None })
}

/// Reads until one whole record is there, or something that can be none.
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
            // A longer one is refused by its header.
            wanted = RECORD_HEADER + if length <= RECORD_PAYLOAD { length } else { 0 };
        }
    }
    Ok(bytes)
}

impl Caller {
    /// Counts the memory of the connection against `budget`, as one of `source`, and grants no more than the protocol's
    /// initial credit, until [`Connection::raise_credit`].
    pub fn bounded(self, budget: &Arc<Budget>, source: IpAddr) -> Self {
        Self { budget: Some((budget.clone(), source)), ..self }
    }

    /// Goes on with the handshake; see [`accept`].
    ///
    /// # Errors
    /// What failed; the peer was told if the protocol allows it.
    pub async fn accept(
        self,
        config: &ServerConfig,
        options: Options,
    ) -> Result<Connection, SessionError> {
        let initial_credit_only = options.initial_credit_only || self.budget.is_some();
        // Its time runs since it connected.
        let channel =
            Channel::server(config, Options { initial_credit_only, ..options }, self.since)?;
        establish(self.transport, channel, self.bytes, self.budget).await
    }
}

/// `received` are bytes of the transport that were read before.
async fn establish(
    transport: Box<dyn Transport>,
    channel: Channel,
    received: Vec<u8>,
    budget: Option<(Arc<Budget>, IpAddr)>,
) -> Result<Connection, SessionError> {
    let shared = Shared::new(channel);
    let account = budget.map(|(budget, source)| budget.enter(source, &shared));
    let handle = Arc::new(Handle(shared.clone()));
    tokio::spawn(Driver::new(shared.clone(), transport, received, account));
    let met = shared.watch(|state| match (&state.ended, state.channel.peer()) {
        (Some(error), _) => Some(Err(error.clone())),
        (None, Some(peer)) if state.connected => Some(Ok((peer, state.channel.resumed()))),
        _ => None,
    });
    let (peer, resumed) = met.await?;
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

    /// Whether it can still be used.
    pub fn is_open(&self) -> bool {
        self.handle.0.lock().ended.is_none()
    }

    /// How this side frames what it sends.
    pub fn framing(&self) -> Framing {
        self.handle.0.lock().channel.framing()
    }

    /// The highest version of the protocol that both ends speak.
    pub fn version(&self) -> u32 {
        self.handle.0.lock().channel.version()
    }

    /// From now on this end holds at least `bytes` in all for readers that do not read, so that some who do not
    /// read leave credit to the others. Less than before changes nothing.
    pub fn hold(&self, bytes: u64) {
        let mut state = self.handle.0.lock();
        state.channel.hold(bytes);
        state.kick();
    }

    /// The peer has proved a right: it is granted credit in full, and its memory counts against no [`Budget`] any more.
    /// Repeating it does nothing.
    pub fn raise_credit(&self) {
        let mut state = self.handle.0.lock();
        state.accounted = false;
        state.channel.raise_credit();
        state.wake_driver();
    }

    /// Whether its memory counts against a [`Budget`], because its peer has yet to prove a right.
    pub fn is_bounded(&self) -> bool {
        self.handle.0.lock().accounted
    }

    /// Keying material for `label`, equal at both ends and bound to this connection (RFC 8446 7.5).
    ///
    /// # Errors
    /// [`SessionError::Channel`] if `out` is longer than the hash can give.
    pub fn export<const N: usize>(&self, label: &str) -> Result<[u8; N], SessionError> {
        let mut out = [0; N];
        self.handle.0.lock().channel.export(label, b"", &mut out)?;
        Ok(out)
    }

    /// Opens a stream; the peer learns of it with its first message.
    ///
    /// # Errors
    /// What ended the connection, or that too many streams are open.
    pub fn open(&self, class: Class) -> Result<Stream, SessionError> {
        let mut state = self.handle.0.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let id = state.channel.open(class)?;
        Ok(Stream::new(self.handle.clone(), &mut state, id))
    }

    /// The next stream that the peer opens; `None` once the connection is over.
    pub async fn accept(&self) -> Option<Stream> {
        let opened = self.handle.0.watch(|state| match state.next_opened() {
            Some(id) => Some(Some(Stream::new(self.handle.clone(), state, id))),
            None => state.ended.is_some().then_some(None),
        });
        opened.await
    }

    /// Closes the connection: what was accepted for sending goes first, then `code` and `reason`
    /// (one line, for a person), then TLS's close_notify.
    pub fn close(&self, code: u64, reason: &str) {
        let mut state = self.handle.0.lock();
        state.channel.close(code, reason);
        state.dispatch_events();
        state.wake_driver();
    }

    /// Waits until everything that will ever leave has been handed to the transport: after [`Self::close`],
    /// what a process waits for before it ends.
    pub async fn flushed(&self) {
        self.handle.0.watch(|state| state.flushed.then_some(())).await;
    }

    /// Streams that are in use at this end.
    pub fn streams(&self) -> usize {
        self.handle.0.lock().streams
    }

    /// Replaces this side's sending key now, and asks the peer to replace its own (RFC 8446 4.6.3).
    pub fn update_key(&self) {
        let mut state = self.handle.0.lock();
        state.channel.update_key();
        state.kick();
    }

    /// Waits for the end of the connection and says why it ended.
    pub async fn closed(&self) -> SessionError {
        self.handle.0.watch(|state| state.ended.clone()).await
    }
}
