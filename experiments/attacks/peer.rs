//! Connections to the node from chosen addresses of loopback.

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

/// The source of attacks that have one.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How long the node may take to accept a connection, or to answer.
const LIMIT: Duration = Duration::from_secs(20);
/// Before what has failed is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// A connection as a new identity.
pub async fn meet(target: &Target, source: Ipv4Addr) -> anyhow::Result<Connection> {
    let config = ClientConfig::new(&SecretKey::generate(&SystemRandom)?)?;
    let link = Box::new(Tcp::new(dial(source, target.address).await?)?);
    Ok(connect(link, &config, Some(target.identity), Options::default()).await?)
}

/// A socket to `address`, from `source`.
pub async fn dial(source: Ipv4Addr, address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    Ok(timeout(LIMIT, socket.connect(address)).await??)
}

/// Sends an operation on a stream of its own, and waits for its answer.
pub async fn ask(connection: &Connection, operation: Operation) -> anyhow::Result<()> {
    let mut stream = connection.open(Class::Interactive)?;
    stream.send(&wire::encode(&wire::Operation::from(operation))).await?;
    stream.finish().await?;
    timeout(LIMIT, stream.receive(wire::MAX_MESSAGE)).await??;
    Ok(())
}

/// So many at the same time, until all have ended or this is dropped; on a runtime of one thread.
pub async fn together<F: Future<Output = ()> + 'static>(count: usize, make: impl Fn(usize) -> F) {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn_local(make(number));
    }
    while tasks.join_next().await.is_some() {}
}

/// Does it again and again, whether it fails or not.
pub async fn forever(mut once: impl AsyncFnMut() -> anyhow::Result<()>) {
    loop {
        if once().await.is_err() {
            sleep(AGAIN).await;
        }
    }
}
