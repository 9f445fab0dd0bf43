//! Connections to the coordinator.

use std::sync::Arc;

use anyhow::Context;
use levada_core::{SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Connection, connect as connect_session};
use levada_swarm::driver::Link;
use levada_transport::quic::Endpoint;
use tokio::task::JoinSet;

use super::network::{ByUdp, endpoint, transport};

/// Handshakes at a time.
const HANDSHAKES: usize = 64;

/// Where the coordinator is.
#[derive(clap::Args, Clone)]
pub(super) struct Target {
    /// Where the coordinator listens
    pub(super) address: String,
    /// Its identity
    pub(super) identity: String,
    /// The stream that goes by UDP
    #[arg(long)]
    pub(super) udp: Option<ByUdp>,
}

/// A registered connection, or two.
pub(super) struct Joined {
    /// They end when this is dropped.
    pub(super) connections: Vec<Connection>,
    pub(super) link: Link,
    /// What it was made from, with UDP.
    pub(super) endpoint: Option<Endpoint>,
}

/// A new identity.
pub(super) fn identity() -> anyhow::Result<Arc<ClientConfig>> {
    Ok(Arc::new(ClientConfig::new(&SecretKey::generate(&SystemRandom)?)?))
}

/// Joins with each identity, in their order, and waits until all are registered.
pub(super) async fn connect_all(
    target: &Target,
    identities: Vec<Arc<ClientConfig>>,
) -> anyhow::Result<Vec<Joined>> {
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    let count = identities.len();
    let mut left = identities.into_iter().enumerate();
    while connections.len() < count {
        while tasks.len() < HANDSHAKES
            && let Some((number, config)) = left.next()
        {
            let target = target.clone();
            tasks.spawn(
                async move { Ok::<_, anyhow::Error>((number, join(&config, &target).await?)) },
            );
        }
        connections.push(tasks.join_next().await.context("no task")???);
    }
    connections.sort_by_key(|(number, _)| *number);
    Ok(connections.into_iter().map(|(_, joined)| joined).collect())
}

async fn join(config: &ClientConfig, target: &Target) -> anyhow::Result<Joined> {
    let (connection, link) = described(config, target, None).await?;
    let Some(stream) = target.udp else {
        return Ok(Joined { connections: vec![connection], link, endpoint: None });
    };
    let endpoint = endpoint()?;
    let (quic, of_quic) = described(config, target, Some(&endpoint)).await?;
    let link = Link::split(link, of_quic, stream.into()).await?;
    Ok(Joined { connections: vec![connection, quic], link, endpoint: Some(endpoint) })
}

/// Connects, and waits for the description, which says that the connection is registered.
async fn described(
    config: &ClientConfig,
    target: &Target,
    endpoint: Option<&Endpoint>,
) -> anyhow::Result<(Connection, Link)> {
    let (connection, mut link) = connect(config, target, endpoint).await?;
    link.control.receive(258).await?.context("the coordinator says nothing")?;
    Ok((connection, link))
}

/// Connects, opens the two streams, and writes a byte into each.
pub(super) async fn connect(
    config: &ClientConfig,
    target: &Target,
    endpoint: Option<&Endpoint>,
) -> anyhow::Result<(Connection, Link)> {
    let transport = transport(&target.address, endpoint).await?;
    let identity = Some(target.identity.parse()?);
    let connection = connect_session(transport, config, identity, Default::default()).await?;
    let mut control = connection.open(Class::Interactive)?;
    let mut data = connection.open(Class::Bulk)?;
    control.send(b"c").await?;
    data.send(b"d").await?;
    Ok((connection, Link { control, data }))
}
