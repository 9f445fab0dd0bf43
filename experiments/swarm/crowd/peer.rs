//! The peer that fetches the content again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_core::{Identity, SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Connection, SessionError, connect as connect_session};
use levada_swarm::content::PartialFile;
use levada_swarm::driver::{Dial, Get, Link, Network, Progress};
use levada_swarm::mode::Mode;
use levada_swarm::{ChunkSize, ContentId, Description, Geometry};
use levada_transport::connect_tcp;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The times in seconds from the first message of a download to its end, without the handshake.
pub(super) fn downloads(
    address: &str,
    identity: &str,
    length: usize,
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let identity: Identity = identity.parse()?;
    let key = SecretKey::generate(&SystemRandom)?;
    let config = Arc::new(ClientConfig::new(&key)?);
    let geometry = Geometry::new(length as u64, ChunkSize::new(1024)?)?;
    let id = ContentId { root: *blake3::hash(&vec![7; length]).as_bytes(), geometry };
    let one = || timeout(LIMIT, download(&config, address, identity, id));
    runtime.block_on(async {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(one().await.context("a download takes too long")??);
        }
        Ok(times)
    })
}

async fn download(
    config: &ClientConfig,
    address: &str,
    identity: Identity,
    id: ContentId,
) -> anyhow::Result<f64> {
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let (connection, mut link) = connect(config, address, identity).await?;
    Description::receive(&mut link.control).await?;
    let dial: Dial = Arc::new(|_, _| Box::pin(async { Err(SessionError::Closed) }));
    let (_incoming, incoming) = channel(1);
    let (progress, mut reports) = channel(1000);
    let get = Get {
        coordinator: link,
        mode: Mode::Direct,
        file: PartialFile::open(&folder.path().join("file"), id)?,
        network: Network { dial, udp: None, incoming, addresses: Vec::new() },
        progress,
        seed: 1,
        upload: true,
    };
    let (complete, completed) = oneshot::channel();
    let start = Instant::now();
    let watch = async move {
        while let Some(report) = reports.recv().await {
            if report == Progress::Complete {
                let _ = complete.send(());
                return;
            }
        }
    };
    let (got, ()) = tokio::join!(get.run(async { drop(completed.await) }), watch);
    got?;
    let took = start.elapsed().as_secs_f64();
    connection.close(0, "");
    Ok(took)
}

/// Connects, opens the two streams, and writes a byte into each.
pub(super) async fn connect(
    config: &ClientConfig,
    address: &str,
    identity: Identity,
) -> anyhow::Result<(Connection, Link)> {
    let tcp = connect_tcp(address, LIMIT).await?;
    let transport = Box::new(tcp);
    let connection = connect_session(transport, config, Some(identity), Default::default()).await?;
    let mut control = connection.open(Class::Interactive)?;
    let mut data = connection.open(Class::Bulk)?;
    control.send(b"c").await?;
    data.send(b"d").await?;
    Ok((connection, Link { control, data }))
}
