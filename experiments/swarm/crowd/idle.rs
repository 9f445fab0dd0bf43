//! Registered connections that do nothing.

use std::io::{Read, Write, stdin, stdout};
use std::sync::Arc;

use anyhow::Context;
use levada_core::{SecretKey, SystemRandom};
use levada_session::{ClientConfig, Connection};
use levada_swarm::driver::Link;
use tokio::task::JoinSet;

use super::peer::connect;
use crate::limits::allow_sockets;

/// Handshakes at a time.
const HANDSHAKES: usize = 64;

pub(super) fn run(address: &str, identity: &str, count: usize) -> anyhow::Result<()> {
    allow_sockets()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connections = runtime.block_on(open(address, identity, count))?;
    writeln!(stdout(), "ready")?;
    stdout().flush()?;
    // Pings are answered meanwhile.
    runtime.block_on(async {
        tokio::task::spawn_blocking(|| stdin().read(&mut [0]).map(drop)).await
    })??;
    drop(connections);
    Ok(())
}

/// Opens the connections; they all prove the same identity.
async fn open(
    address: &str,
    identity: &str,
    count: usize,
) -> anyhow::Result<Vec<(Connection, Link)>> {
    let key = SecretKey::generate(&SystemRandom)?;
    let config = Arc::new(ClientConfig::new(&key)?);
    let (mut tasks, mut connections) = (JoinSet::new(), Vec::new());
    let mut left = count;
    while connections.len() < count {
        while left > 0 && tasks.len() < HANDSHAKES {
            left -= 1;
            let (config, address) = (config.clone(), address.to_owned());
            let identity = identity.parse()?;
            tasks.spawn(async move {
                let (connection, mut link) = connect(&config, &address, identity).await?;
                // The description says that the connection is registered.
                link.control.receive(258).await?.context("the coordinator says nothing")?;
                Ok::<_, anyhow::Error>((connection, link))
            });
        }
        connections.push(tasks.join_next().await.context("no task")???);
    }
    Ok(connections)
}
