//! Sockets of coordinators and peers: TCP, and QUIC at the same port of UDP.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use levada_core::{SecretKey, SystemRandom};
use levada_session::{
    ClientConfig, Connection, Options, ServerConfig, SessionError, accept, connect,
};
use levada_swarm::UdpStream;
use levada_swarm::driver::{Dial, Network};
use levada_transport::quic::{Endpoint, QuicListener, QuicOptions};
use levada_transport::{Quic, Tcp, Transport, connect_tcp};
use tokio::net::TcpListener;
use tokio::sync::mpsc::channel;
use tokio::task::JoinSet;

/// How long a connection may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Connections that wait to be taken.
const QUEUE: usize = 64;
/// Handshakes over QUIC at a time: all peers connect at once.
const HANDSHAKES: usize = 256;

/// The stream of a link that goes by UDP; the other one goes by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByUdp {
    Control,
    Data,
}

impl From<ByUdp> for UdpStream {
    fn from(by_udp: ByUdp) -> Self {
        match by_udp {
            ByUdp::Control => Self::Control,
            ByUdp::Data => Self::Data,
        }
    }
}

/// A peer's key, at both ends of a connection.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Key {
    pub(super) fn new() -> anyhow::Result<Self> {
        let key = SecretKey::generate(&SystemRandom)?;
        let client = ClientConfig::new(&key)?;
        let server = ServerConfig::new(&key)?;
        Ok(Self { client: client.into(), server: server.into() })
    }
}

/// Accepts connections over QUIC; none without UDP.
pub(super) struct Accepting(Option<(Endpoint, QuicListener)>);

impl Accepting {
    /// The next one.
    pub(super) async fn accept(&mut self) -> Option<Quic> {
        match &mut self.0 {
            Some((_, listener)) => listener.accept().await.map(|(transport, _)| transport),
            None => std::future::pending().await,
        }
    }
}

/// Listens at a port of loopback.
pub(super) async fn bind(udp: bool) -> anyhow::Result<(TcpListener, Accepting)> {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await?;
        if !udp {
            return Ok((tcp, Accepting(None)));
        }
        // Another process may use this port of UDP.
        if let Ok(socket) = UdpSocket::bind(tcp.local_addr()?) {
            let options = QuicOptions {
                handshakes: HANDSHAKES,
                handshakes_per_source: HANDSHAKES,
                ..QuicOptions::default()
            };
            return Ok((tcp, Accepting(Some(Endpoint::new(socket, options)?))));
        }
    }
}

/// An endpoint that only connects.
pub(super) fn endpoint() -> anyhow::Result<Endpoint> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("open a UDP socket")?;
    let options = QuicOptions { handshakes: 0, ..QuicOptions::default() };
    Ok(Endpoint::new(socket, options)?.0)
}

/// A network without other peers, as in mediated mode.
pub(super) fn alone() -> (Network, JoinSet<()>) {
    let dial: Dial = Arc::new(|_, _| Box::pin(async { Err(SessionError::Closed) }));
    let (sender, incoming) = channel::<Connection>(1);
    let mut tasks = JoinSet::new();
    // A network whose sender is gone has ended.
    tasks.spawn(async move { sender.closed().await });
    (Network { dial, udp: None, incoming, addresses: Vec::new() }, tasks)
}

/// A network in which peers connect to each other, until the second part is dropped.
pub(super) async fn mesh(
    key: &Key,
    udp: Option<(ByUdp, Endpoint)>,
) -> anyhow::Result<(Network, JoinSet<()>)> {
    let (tcp, mut quic) = bind(udp.is_some()).await?;
    let address = tcp.local_addr()?.to_string();
    let (sender, incoming) = channel(QUEUE);
    let mut tasks = JoinSet::new();
    let config = key.server.clone();
    tasks.spawn(async move {
        let mut handshakes = JoinSet::new();
        loop {
            let transport: Box<dyn Transport> = tokio::select! {
                accepted = tcp.accept() => match accepted.map(|(socket, _)| Tcp::new(socket)) {
                    Ok(Ok(transport)) => Box::new(transport),
                    _ => return,
                },
                Some(transport) = quic.accept() => Box::new(transport),
                Some(_) = handshakes.join_next() => continue,
            };
            let config = config.clone();
            let sender = sender.clone();
            handshakes.spawn(async move {
                if let Ok(connection) = accept(transport, &config, Options::default()).await {
                    let _ = sender.send(connection).await;
                }
            });
        }
    });
    let udp = udp.map(|(stream, endpoint)| (stream.into(), dial(key, Some(endpoint))));
    Ok((Network { dial: dial(key, None), udp, incoming, addresses: vec![address] }, tasks))
}

fn dial(key: &Key, endpoint: Option<Endpoint>) -> Dial {
    let config = key.client.clone();
    Arc::new(move |identity, addresses: Vec<String>| {
        let config = config.clone();
        let endpoint = endpoint.clone();
        Box::pin(async move {
            let address = addresses.first().cloned().unwrap_or_default();
            let failed = |error: String| SessionError::Transport(error);
            let transport = transport(&address, endpoint.as_ref()).await;
            let transport = transport.map_err(|error| failed(error.to_string()))?;
            connect(transport, &config, Some(identity), Options::default()).await
        })
    })
}

/// Connects over TCP, or over QUIC with an endpoint.
pub(super) async fn transport(
    address: &str,
    endpoint: Option<&Endpoint>,
) -> anyhow::Result<Box<dyn Transport>> {
    Ok(match endpoint {
        Some(endpoint) => {
            let address: SocketAddr = address.parse()?;
            Box::new(endpoint.connect(address, LIMIT).await?)
        }
        None => Box::new(connect_tcp(address, LIMIT).await?),
    })
}
