//! How a peer of a share reaches others, and they it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use levada_channel::ServerConfig;
use levada_client::{Client, Target};
use levada_session::{Connection, Options, accept};
use levada_swarm::driver::{Dial, Network};
use levada_transport::Tcp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::listen::handed_out;

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

/// Opens the network of a peer. The result's second part accepts until it is dropped.
///
/// # Errors
/// The address cannot be listened on, or the key cannot be used for TLS.
pub fn open(client: &Arc<Client>, listen: Listen) -> io::Result<(Network, JoinSet<()>)> {
    let (sender, incoming) = channel(HANDSHAKES);
    let mut tasks = JoinSet::new();
    let mut addresses = Vec::new();
    match bind(listen)? {
        Some(listener) => {
            let config = ServerConfig::new(client.key()).map_err(io::Error::other)?;
            addresses = handed_out(&[listener.local_addr()?], &[]);
            tasks.spawn(serve(listener, Arc::new(config), sender));
        }
        // A network whose sender is gone has ended.
        None => drop(tasks.spawn(async move { sender.closed().await })),
    }
    let client = client.clone();
    let dial: Dial = Arc::new(move |identity, addresses| {
        let (client, target) = (client.clone(), Target { identity, addresses });
        Box::pin(async move { client.connect_to_peer(&target).await })
    });
    Ok((Network { dial, incoming, addresses }, tasks))
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
        let (config, connections) = (config.clone(), connections.clone());
        tasks.spawn(async move {
            // The channel bounds the time of a handshake.
            let accepted = handshake(socket, &config).await;
            drop(permit);
            if let Some(connection) = accepted {
                let _ = connections.send(connection).await;
            }
        });
    }
}

async fn handshake(socket: TcpStream, config: &ServerConfig) -> Option<Connection> {
    let transport = Tcp::new(socket).ok()?;
    accept(Box::new(transport), config, Options::default()).await.ok()
}
