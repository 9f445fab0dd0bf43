//! Peers that fetch the content at the same time, in one thread.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use levada_harness::pin;
use levada_session::Connection;
use levada_swarm::ContentId;
use levada_swarm::content::PartialFile;
use levada_swarm::driver::Link;
use levada_swarm::mediated::Settings;
use levada_swarm::mode::Mode;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::{Target, connect_all, identity};
use super::peer::fetch;
use super::{cpu_seconds, questions, say, write_content};
use crate::limits::allow_sockets;

/// Threads that store chunks: all run on one core.
const STORING: usize = 4;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many
    count: usize,
    /// The length of the content in bytes
    length: usize,
    /// The bytes of a chunk
    chunk: u32,
    /// Keep a file for each peer, in memory; otherwise each verifies what comes, and reads what it provides from one file
    #[arg(long)]
    keep: bool,
    /// The core that they run on
    #[arg(long)]
    core: usize,
    /// How many seconds it may take
    #[arg(long)]
    limit: u64,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    allow_sockets()?;
    pin(arguments.core)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(STORING)
        .build()?;
    runtime.block_on(run_all(arguments))
}

async fn run_all(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let id = write_content(&folder.path().join("content"), arguments.length, arguments.chunk)?;
    let identities = (0..arguments.count).map(|_| identity()).collect::<Result<_, _>>()?;
    let connecting = Instant::now();
    let connections = connect_all(&arguments.target, identities).await?;
    let connected = connecting.elapsed();
    let mut questions = questions();
    say("ready")?;
    questions.recv().await.context("no question")?;
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let limit = Duration::from_secs(arguments.limit);
    let fetched = fetch_all(arguments.keep, connections, folder.path(), id);
    let (times, running) = timeout(limit, fetched).await.context("the peers take too long")??;
    let seconds = |time: Option<&Instant>| time.map_or(0.0, |at| (*at - start).as_secs_f64());
    let state = json!({
        "connected": connected.as_secs_f64(),
        "first": seconds(times.first()),
        "last": seconds(times.last()),
        "cpu": cpu_seconds() - cpu,
    });
    say(&state.to_string())?;
    // They go on providing until the coordinator was asked for its state.
    while questions.recv().await.is_some() {}
    drop(running);
    Ok(())
}

/// The peers, and what ends them when it is dropped.
struct Running {
    _tasks: JoinSet<anyhow::Result<()>>,
    _stops: Vec<oneshot::Sender<()>>,
    _connections: Vec<Connection>,
}

/// When each peer had everything, the first one first.
async fn fetch_all(
    keep: bool,
    connections: Vec<(Connection, Link)>,
    folder: &Path,
    id: ContentId,
) -> anyhow::Result<(Vec<Instant>, Running)> {
    let (count, content) = (connections.len(), folder.join("content"));
    let (report, mut completed) = unbounded_channel();
    let (mut tasks, mut stops, mut open) = (JoinSet::new(), Vec::new(), Vec::new());
    for (number, (connection, link)) in connections.into_iter().enumerate() {
        let file = match keep {
            true => PartialFile::open(&folder.join(number.to_string()), id)?,
            false => PartialFile::verify_only(&content, id)?,
        };
        let (report, (stop, stopped)) = (report.clone(), oneshot::channel());
        let complete = move || {
            let _ = report.send(Instant::now());
        };
        // A peer needs none of the coordinator's settings.
        let mode = Mode::Mediated(Settings::default());
        tasks.spawn(fetch(link, mode, file, complete, stopped));
        stops.push(stop);
        open.push(connection);
    }
    let times = wait(count, &mut completed, &mut tasks).await?;
    Ok((times, Running { _tasks: tasks, _stops: stops, _connections: open }))
}

async fn wait(
    count: usize,
    completed: &mut UnboundedReceiver<Instant>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<Vec<Instant>> {
    let mut times = Vec::new();
    while times.len() < count {
        tokio::select! {
            at = completed.recv() => times.push(at.context("no peer is left")?),
            Some(ended) = tasks.join_next() => {
                ended??;
                bail!("a peer has ended");
            }
        }
    }
    Ok(times)
}
