//! Connections to the coordinator.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use levada_core::{SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Connection, connect as connect_session};
use levada_swarm::driver::Link;
use levada_transport::connect_tcp;
use tokio::task::JoinSet;

/// Handshakes at a time.
const HANDSHAKES: usize = 64;
/// How long a connection may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the coordinator is.
#[derive(clap::Args, Clone)]
pub(super) struct Target {
    /// Where the coordinator listens
    pub(super) address: String,
    /// Its identity
    pub(super) identity: String,
}

/// A new identity.
pub(super) fn identity() -> anyhow::Result<Arc<ClientConfig>> {
    Ok(Arc::new(ClientConfig::new(&SecretKey::generate(&SystemRandom)?)?))
}

/// Opens a connection for each identity, and waits until all are registered.
pub(super) async fn connect_all(
    target: &Target,
    identities: Vec<Arc<ClientConfig>>,
) -> anyhow::Result<Vec<(Connection, Link)>> {
    let (mut tasks, mut connections) = (JoinSet::new(), Vec::new());
    let count = identities.len();
    let mut left = identities.into_iter();
    while connections.len() < count {
        while tasks.len() < HANDSHAKES
            && let Some(config) = left.next()
        {
            let target = target.clone();
            tasks.spawn(async move {
                let (connection, mut link) = connect(&config, &target).await?;
                // The description says that the connection is registered.
                link.control.receive(258).await?.context("the coordinator says nothing")?;
                Ok::<_, anyhow::Error>((connection, link))
            });
        }
        connections.push(tasks.join_next().await.context("no task")???);
    }
    Ok(connections)
}

/// Connects, opens the two streams, and writes a byte into each.
pub(super) async fn connect(
    config: &ClientConfig,
    target: &Target,
) -> anyhow::Result<(Connection, Link)> {
    let tcp = connect_tcp(&target.address, LIMIT).await?;
    let identity = Some(target.identity.parse()?);
    let connection = connect_session(Box::new(tcp), config, identity, Default::default()).await?;
    let mut control = connection.open(Class::Interactive)?;
    let mut data = connection.open(Class::Bulk)?;
    control.send(b"c").await?;
    data.send(b"d").await?;
    Ok((connection, Link { control, data }))
}
