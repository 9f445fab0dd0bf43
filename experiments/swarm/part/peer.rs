//! One peer that fetches the content.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_session::{Connection, SessionError};
use levada_swarm::ContentId;
use levada_swarm::content::PartialFile;
use levada_swarm::driver::{Dial, Get, Link, Network, Progress};
use levada_swarm::mode::Mode;
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{Target, connect, identity};
use super::write_content;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
/// More reports than a download makes.
const REPORTS: usize = 1000;

/// The times in seconds from the first message of a download to its end, without the handshake. Direct mode, one download after the other.
pub fn downloads(
    address: &str,
    identity_of_coordinator: &str,
    (length, chunk): (usize, u32),
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let target = Target { address: address.into(), identity: identity_of_coordinator.into() };
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let id = write_content(&folder.path().join("content"), length, chunk)?;
    let (config, path) = (identity()?, folder.path());
    runtime.block_on(async {
        let mut times = Vec::new();
        for number in 0..count {
            let (connection, mut link) = connect(&config, &target).await?;
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
    let file = PartialFile::open(target, id)?;
    let fetched = fetch(
        link,
        Mode::Direct,
        file,
        move || {
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

/// Fetches the content without other peers, reports its end, and goes on providing until `stop` is resolved.
pub(super) async fn fetch(
    link: Link,
    mode: Mode,
    file: PartialFile,
    complete: impl FnOnce(),
    stop: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let dial: Dial = Arc::new(|_, _| Box::pin(async { Err(SessionError::Closed) }));
    let (_incoming, incoming) = channel::<Connection>(1);
    let (progress, mut reports) = channel(REPORTS);
    let network = Network { dial, udp: None, incoming, addresses: Vec::new() };
    let get = Get { coordinator: link, mode, file, network, progress, seed: 1, upload: true };
    let watch = async move {
        while let Some(report) = reports.recv().await {
            if report == Progress::Complete {
                return complete();
            }
        }
    };
    let (got, ()) = tokio::join!(get.run(async { drop(stop.await) }), watch);
    got?;
    Ok(())
}
