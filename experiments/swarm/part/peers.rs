//! Peers that fetch the content at the same time, in one thread.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use levada_harness::pin;
use levada_session::Connection;
use levada_swarm::ContentId;
use levada_swarm::content::PartialFile;
use levada_swarm::mediated::Settings;
use levada_swarm::mode::Mode;
use levada_transport::quic::Endpoint;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::{Joined, Target, connect_all};
use super::network::{Key, alone, mesh};
use super::peer::Peer;
use super::{clock_seconds, cpu_seconds, questions, say, write_content};
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
    /// Keep a file for each peer, in memory; otherwise each verifies what comes, and reads what it
    /// provides from one file
    #[arg(long)]
    keep: bool,
    /// Direct mode: peers connect to each other
    #[arg(long)]
    direct: bool,
    /// Say how long each chunk of each peer took
    #[arg(long)]
    trace: bool,
    /// The core that they run on
    #[arg(long)]
    core: Option<usize>,
    /// How many seconds it may take
    #[arg(long)]
    limit: u64,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    allow_sockets()?;
    arguments.core.map_or(Ok(()), pin)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(STORING)
        .build()?;
    runtime.block_on(run_all(arguments))
}

async fn run_all(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let id = write_content(&folder.path().join("content"), arguments.length, arguments.chunk)?;
    let keys = (0..arguments.count).map(|_| Key::new()).collect::<Result<Vec<_>, _>>()?;
    let connecting = Instant::now();
    let identities = keys.iter().map(|key| key.client.clone()).collect();
    let joined = connect_all(&arguments.target, identities).await?;
    let connected = connecting.elapsed();
    let mut questions = questions();
    say("ready")?;
    questions.recv().await.context("no question")?;
    let cpu = cpu_seconds();
    let start = Instant::now();
    let began = clock_seconds();
    let limit = Duration::from_secs(arguments.limit);
    let peers = joined.into_iter().zip(keys).collect();
    let fetched = fetch_all(arguments, peers, folder.path(), id);
    let (ended, running) = timeout(limit, fetched).await.context("the peers take too long")??;
    let seconds = |one: Option<&Ended>| one.map_or(0.0, |one| (one.at - start).as_secs_f64());
    let cpu = cpu_seconds() - cpu;
    let right = if arguments.keep { count_right(arguments.count, folder.path(), id)? } else { 0 };
    let state = json!({
        "connected": connected.as_secs_f64(),
        "began": began,
        "first": seconds(ended.first()),
        "last": seconds(ended.last()),
        "cpu": cpu,
        "right": right,
        "round_trips": round_trips(arguments.trace, &ended),
    });
    say(&state.to_string())?;
    // They go on providing until the coordinator was asked for its state.
    while questions.recv().await.is_some() {}
    drop(running);
    Ok(())
}

/// How many files have the root of the content.
fn count_right(count: usize, folder: &Path, id: ContentId) -> anyhow::Result<usize> {
    let mut right = 0;
    for number in 0..count {
        let content = fs::read(folder.join(number.to_string()))?;
        right += usize::from(*blake3::hash(&content).as_bytes() == id.root);
    }
    Ok(right)
}

/// Peer, chunk and seconds.
fn round_trips(trace: bool, ended: &[Ended]) -> Vec<(usize, u32, f64)> {
    let of = |one: &Ended| {
        let peer = one.peer;
        let times = one.chunks.iter().map(move |(index, took)| (peer, *index, took.as_secs_f64()));
        times.collect::<Vec<_>>()
    };
    ended.iter().filter(|_| trace).flat_map(of).collect()
}

/// The peers, and what ends them when it is dropped.
struct Running {
    _tasks: JoinSet<anyhow::Result<()>>,
    _networks: Vec<JoinSet<()>>,
    _stops: Vec<oneshot::Sender<()>>,
    _connections: Vec<(Vec<Connection>, Option<Endpoint>)>,
}

/// A peer that had everything.
struct Ended {
    peer: usize,
    at: Instant,
    chunks: Vec<(u32, Duration)>,
}

/// When each peer had everything, the first one first.
async fn fetch_all(
    arguments: &Arguments,
    peers: Vec<(Joined, Key)>,
    folder: &Path,
    id: ContentId,
) -> anyhow::Result<(Vec<Ended>, Running)> {
    let count = peers.len();
    let content = folder.join("content");
    let (report, mut completed) = unbounded_channel();
    let mut tasks = JoinSet::new();
    let mut stops = Vec::new();
    let mut open = Vec::new();
    let mut networks = Vec::new();
    for (number, (joined, key)) in peers.into_iter().enumerate() {
        let Joined { connections, link, endpoint } = joined;
        let file = match arguments.keep {
            true => PartialFile::open(&folder.join(number.to_string()), id)?,
            false => PartialFile::verify_only(&content, id)?,
        };
        let report = report.clone();
        let (stop, stopped) = oneshot::channel();
        let complete = move |chunks| {
            let _ = report.send(Ended { peer: number, at: Instant::now(), chunks });
        };
        let udp = arguments.target.udp.zip(endpoint.clone());
        let (mode, (network, network_tasks)) = match arguments.direct {
            true => (Mode::Direct, mesh(&key, udp).await?),
            // A peer needs none of the coordinator's settings.
            false => (Mode::Mediated(Settings::default()), alone()),
        };
        let peer = Peer { link, mode, file, network, seed: number as u64 };
        tasks.spawn(peer.fetch(complete, stopped));
        stops.push(stop);
        networks.push(network_tasks);
        open.push((connections, endpoint));
    }
    let ended = wait(count, &mut completed, &mut tasks).await?;
    let running = Running { _tasks: tasks, _networks: networks, _stops: stops, _connections: open };
    Ok((ended, running))
}

async fn wait(
    count: usize,
    completed: &mut UnboundedReceiver<Ended>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<Vec<Ended>> {
    let mut all = Vec::new();
    while all.len() < count {
        tokio::select! {
            ended = completed.recv() => all.push(ended.context("no peer is left")?),
            Some(ended) = tasks.join_next() => {
                ended??;
                bail!("a peer has ended");
            }
        }
    }
    Ok(all)
}
