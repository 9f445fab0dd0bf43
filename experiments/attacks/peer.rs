//! Connections to the node from given loopback addresses, and repetition of an attack's tasks.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use levada_core::wire::{self, operation::Operation};
use levada_core::{SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Connection, Options, connect};
use levada_transport::Tcp;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::victim::Target;

/// The source address of attacks from a single source.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The time limit for the node to accept a connection, or to answer.
const LIMIT: Duration = Duration::from_secs(20);
/// The delay before a retry after an error.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Connects with a new identity.
pub async fn connect_as_new_identity(
    target: &Target,
    source: Ipv4Addr,
) -> anyhow::Result<Connection> {
    let config = ClientConfig::new(&SecretKey::generate(&SystemRandom)?)?;
    let transport = Box::new(Tcp::new(dial(source, target.address).await?)?);
    Ok(connect(transport, &config, Some(target.identity), Options::default()).await?)
}

/// Opens a socket to `address` from `source`.
pub async fn dial(source: Ipv4Addr, address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    Ok(timeout(LIMIT, socket.connect(address)).await??)
}

/// Sends an operation on a new stream, and waits for its answer.
pub async fn request(connection: &Connection, operation: Operation) -> anyhow::Result<()> {
    let mut stream = connection.open(Class::Interactive)?;
    stream.send(&wire::encode(&wire::Operation::from(operation))).await?;
    stream.finish().await?;
    timeout(LIMIT, stream.receive(wire::MAX_MESSAGE)).await??;
    Ok(())
}

/// Runs `count` local tasks concurrently, until all have ended or this is dropped.
pub async fn spawn_all<F: Future<Output = ()> + 'static>(count: usize, make: impl Fn(usize) -> F) {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn_local(make(number));
    }
    while tasks.join_next().await.is_some() {}
}

/// Repeats `once`, with a delay after an error.
pub async fn repeat(mut once: impl AsyncFnMut() -> anyhow::Result<()>) {
    loop {
        if once().await.is_err() {
            sleep(RETRY_DELAY).await;
        }
    }
}
