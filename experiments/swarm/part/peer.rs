//! One peer that fetches the content.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_swarm::ContentId;
use levada_swarm::content::PartialFile;
use levada_swarm::driver::{Get, Link, Network, Progress};
use levada_swarm::mode::Mode;
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{Target, connect, identity};
use super::network::alone;
use super::write_content;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// More reports than wait at a time.
const REPORTS: usize = 1000;

/// The times in seconds from the first message of a download to its end, without the handshake.
/// Direct mode, one download after the other.
pub fn downloads(
    address: &str,
    identity_of_coordinator: &str,
    (length, chunk): (usize, u32),
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let target =
        Target { address: address.into(), identity: identity_of_coordinator.into(), udp: None };
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let id = write_content(&folder.path().join("content"), length, chunk)?;
    let config = identity()?;
    let path = folder.path();
    runtime.block_on(async {
        let mut times = Vec::new();
        for number in 0..count {
            let (connection, mut link) = connect(&config, &target, None).await?;
            link.control.receive(258).await?;
            let target = path.join(number.to_string());
            let download = download(link, id, &target);
            times.push(timeout(LIMIT, download).await.context("a download takes too long")??);
            connection.close(0, "");
        }
        Ok(times)
    })
}

async fn download(link: Link, id: ContentId, target: &Path) -> anyhow::Result<f64> {
    let (complete, mut completed) = unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let start = Instant::now();
    let (network, _open) = alone();
    let peer =
        Peer { link, mode: Mode::Direct, file: PartialFile::open(target, id)?, network, seed: 1 };
    let fetched = peer.fetch(
        move |_| {
            let _ = complete.send(start.elapsed());
        },
        stopped,
    );
    let watched = async {
        let took = completed.recv().await;
        drop(stop);
        took
    };
    let (fetched, took) = tokio::join!(fetched, watched);
    fetched?;
    Ok(took.context("a download reports no end")?.as_secs_f64())
}

/// What fetches the content.
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) mode: Mode,
    pub(super) file: PartialFile,
    pub(super) network: Network,
    pub(super) seed: u64,
}

impl Peer {
    /// Fetches the content, reports the end and how long each chunk took, and goes on providing
    /// until `stop` is resolved.
    pub(super) async fn fetch(
        self,
        complete: impl FnOnce(Vec<(u32, Duration)>),
        stop: oneshot::Receiver<()>,
    ) -> anyhow::Result<()> {
        let Self { link, mode, file, network, seed } = self;
        let (progress, mut reports) = channel(REPORTS);
        let get = Get { coordinator: link, mode, file, network, progress, seed, upload: true };
        let watch = async move {
            let mut times = Vec::new();
            while let Some(report) = reports.recv().await {
                match report {
                    Progress::Chunk { index, took, .. } => times.push((index, took)),
                    Progress::Complete => return complete(times),
                    _ => {}
                }
            }
        };
        let (got, ()) = tokio::join!(get.run(async { drop(stop.await) }), watch);
        got?;
        Ok(())
    }
}
