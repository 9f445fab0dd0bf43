//! Connects a peer with the other peers of its share, in both directions.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use levada_channel::ServerConfig;
use levada_client::{Client, Over, Target};
use levada_home::address;
use levada_session::{Connection, Options, accept};
use levada_swarm::UdpStream;
use levada_swarm::driver::{Dial, Network};
use levada_transport::quic::{self, Endpoint, QuicListener, QuicOptions};
use levada_transport::{Tcp, Transport};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Handshakes at a time. Anyone may connect; only peers that the node has named are served.
const HANDSHAKES: usize = 32;
/// The pause after an accept that failed, for example for lack of files.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Where a peer accepts connections of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere: it connects to others only.
    Not,
    /// At a free port of all addresses.
    Free,
    /// At this address.
    At(SocketAddr),
}

/// Opens the network of a peer; with `udp`, the stream that goes by UDP and what connects by it,
/// others can connect by UDP at the number of the TCP port, too. The result's second part accepts
/// until it is dropped.
///
/// # Errors
/// The address cannot be listened on, or the key cannot be used for TLS.
pub fn open(
    client: &Arc<Client>,
    listen: Listen,
    udp: Option<(UdpStream, Endpoint)>,
) -> io::Result<(Network, JoinSet<()>)> {
    let (sender, incoming) = channel(HANDSHAKES);
    let mut tasks = JoinSet::new();
    let mut addresses = Vec::new();
    match bind(listen)? {
        Some(listener) => {
            let config = Arc::new(ServerConfig::new(client.key()).map_err(io::Error::other)?);
            let address = listener.local_addr()?;
            addresses = address::published(&[address], &[]);
            if udp.is_some() {
                let socket = quic::bind(address);
                match socket.and_then(|socket| Endpoint::new(socket, QuicOptions::default())) {
                    Ok(bound) => {
                        drop(tasks.spawn(serve_udp(bound, config.clone(), sender.clone())))
                    }
                    Err(error) => {
                        tracing::warn!(%address, %error, "other peers connect by TCP only");
                    }
                }
            }
            tasks.spawn(serve(listener, config, sender));
        }
        // A network whose sender is gone has ended.
        None => drop(tasks.spawn(async move { sender.closed().await })),
    }
    let udp = udp.map(|(stream, endpoint)| (stream, dial(client.clone(), Over::Udp(endpoint))));
    let dial = dial(client.clone(), Over::Tcp);
    Ok((Network { dial, udp, incoming, addresses }, tasks))
}

/// An endpoint that only connects, from a free port.
///
/// # Errors
/// No socket can be opened.
pub fn endpoint() -> io::Result<Endpoint> {
    let any = |address: IpAddr| quic::bind((address, 0).into());
    // Both families, or a host without IPv6.
    let socket =
        any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
    let options = QuicOptions { handshakes: 0, ..QuicOptions::default() };
    Ok(Endpoint::new(socket, options)?.0)
}

fn dial(client: Arc<Client>, over: Over) -> Dial {
    Arc::new(move |identity, addresses| {
        let client = client.clone();
        let over = over.clone();
        let target = Target { identity, addresses };
        Box::pin(async move { client.connect_to_peer(&target, &over).await })
    })
}

fn bind(at: Listen) -> io::Result<Option<TcpListener>> {
    let listen = |address: SocketAddr| {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket).map(Some)
    };
    match at {
        Listen::Not => Ok(None),
        Listen::At(address) => listen(address),
        // Both families, or a host without IPv6.
        Listen::Free => listen((Ipv6Addr::UNSPECIFIED, 0).into())
            .or_else(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into())),
    }
}

async fn serve(listener: TcpListener, config: Arc<ServerConfig>, connections: Sender<Connection>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            sleep(RETRY_PAUSE).await;
            continue;
        };
        let Ok(transport) = Tcp::new(socket) else { continue };
        let config = config.clone();
        let connections = connections.clone();
        tasks.spawn(handshake(Box::new(transport), permit, config, connections));
    }
}

/// As [`serve`], for connections over QUIC.
async fn serve_udp(
    (_endpoint, mut listener): (Endpoint, QuicListener),
    config: Arc<ServerConfig>,
    connections: Sender<Connection>,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
        let Some((transport, _)) = listener.accept().await else { return };
        let config = config.clone();
        let connections = connections.clone();
        tasks.spawn(handshake(Box::new(transport), permit, config, connections));
    }
}

async fn handshake(
    transport: Box<dyn Transport>,
    permit: OwnedSemaphorePermit,
    config: Arc<ServerConfig>,
    connections: Sender<Connection>,
) {
    // The channel bounds the time of a handshake.
    let accepted = accept(transport, &config, Options::default()).await;
    drop(permit);
    if let Ok(connection) = accepted {
        let _ = connections.send(connection).await;
    }
}
