//! An endpoint: one UDP socket for all connections.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, Incoming, Runtime, ServerConfig, TokioRuntime, VarInt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::admission::{Admission, Handshakes, OpenHandshake};
use super::config::{Configs, QuicOptions};
use super::congestion::Shared;
use super::socket::{LimitedSocket, Unvalidated};
use super::stream::Quic;

/// How long a handshake of another side may take, and after it its first bytes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The name of a server in TLS, which is not sent.
const SERVER_NAME: &str = "levada";
/// QUIC version 1 (RFC 9000).
const VERSION: u32 = 1;

/// Connects to other endpoints. Clones share the socket, which is closed when the last clone, the
/// [`QuicListener`] and all connections are dropped, or after [`Endpoint::close`].
#[derive(Clone)]
pub struct Endpoint {
    inner: quinn::Endpoint,
    configs: Arc<Configs>,
}

/// Accepts connections of other endpoints. Dropping it ends the handshakes that are open, and
/// refuses others.
pub struct QuicListener {
    accepted: mpsc::Receiver<(Quic, SocketAddr)>,
}

impl Endpoint {
    /// An endpoint over a bound socket, and what accepts its connections. Must be called in a tokio
    /// runtime.
    ///
    /// # Errors
    /// The operating system's, or that no temporary key could be made.
    pub fn new(socket: UdpSocket, options: QuicOptions) -> io::Result<(Self, QuicListener)> {
        let configs = Configs::new(&options)?;
        let mut config = EndpointConfig::default();
        config.supported_versions(vec![VERSION]);
        let server = (options.handshakes > 0).then(|| ServerConfig::clone(&configs.server().0));
        let unvalidated = Arc::new(Unvalidated::default());
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        let socket = Arc::new(LimitedSocket { inner, unvalidated: unvalidated.clone() });
        let runtime = Arc::new(TokioRuntime);
        let inner = quinn::Endpoint::new_with_abstract_socket(config, server, socket, runtime)?;
        let endpoint = Self { inner, configs: Arc::new(configs) };
        let (sender, accepted) = mpsc::channel(1);
        if options.handshakes > 0 {
            tokio::spawn(accept(endpoint.clone(), Handshakes::new(options, unvalidated), sender));
        }
        Ok((endpoint, QuicListener { accepted }))
    }

    /// Connects to `address` within `limit`. The connecting side must write first: the other side
    /// accepts the transport with the first bytes.
    ///
    /// # Errors
    /// `TimedOut` without an answer; `ConnectionRefused` if the other side accepts no connections
    /// or has too many; QUIC's error as text.
    pub async fn connect(&self, address: SocketAddr, limit: Duration) -> io::Result<Quic> {
        let (config, shared) = self.configs.client();
        let connecting = self.inner.connect_with(config, address, SERVER_NAME);
        let connecting = connecting.map_err(io::Error::other)?;
        timeout(limit, async {
            let connection = connecting.await?;
            let streams = connection.open_bi().await?;
            Ok(Quic::new(connection, streams, shared))
        })
        .await?
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Ends all connections at once, and accepts no more.
    pub fn close(&self) {
        self.inner.close(VarInt::from_u32(0), b"");
    }
}

impl QuicListener {
    /// The next connection, with the address of its other side; `None` after [`Endpoint::close`]. A
    /// call that is dropped loses no connection.
    pub async fn accept(&mut self) -> Option<(Quic, SocketAddr)> {
        self.accepted.recv().await
    }
}

/// Begins handshakes until the endpoint is closed or the listener is dropped.
async fn accept(
    endpoint: Endpoint,
    handshakes: Handshakes,
    sender: mpsc::Sender<(Quic, SocketAddr)>,
) {
    // Dropping it ends them.
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.inner.accept() => {
                let Some(incoming) = incoming else { return };
                let address = incoming.remote_address();
                match handshakes.admit(address, incoming.remote_address_validated()) {
                    Admission::Begin(guard) => {
                        let (config, shared) = endpoint.configs.server();
                        open.spawn(handshake(incoming, config, shared, guard, sender.clone()));
                    }
                    // An address that is not validated can always be asked to.
                    Admission::Validate => drop(incoming.retry()),
                    Admission::Refuse => incoming.refuse(),
                }
            }
            // A failed handshake concerns only its other side.
            Some(_) = open.join_next() => {}
            () = sender.closed() => break,
        }
    }
    endpoint.inner.set_server_config(None);
}

/// Performs a handshake, waits for the stream, and passes it to the listener.
async fn handshake(
    incoming: Incoming,
    config: Arc<ServerConfig>,
    shared: Arc<Shared>,
    mut guard: OpenHandshake,
    sender: mpsc::Sender<(Quic, SocketAddr)>,
) -> io::Result<()> {
    let connection = timeout(HANDSHAKE_TIMEOUT, incoming.accept_with(config)?).await??;
    guard.validated();
    let streams = timeout(HANDSHAKE_TIMEOUT, connection.accept_bi()).await??;
    let address = connection.remote_address();
    // It counts until it is accepted. Without a listener it is dropped.
    let _ = sender.send((Quic::new(connection, streams, shared), address)).await;
    Ok(())
}
