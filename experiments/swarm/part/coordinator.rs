//! The coordinator: one thread, and those that read files.

use std::sync::Arc;

use levada_core::{SecretKey, SystemRandom};
use levada_harness::pin;
use levada_session::{Connection, Options, ServerConfig, accept};
use levada_swarm::ChunkSize;
use levada_swarm::content::Source;
use levada_swarm::driver::{Link, Share, ShareOptions};
use levada_swarm::mediated::{Placement, Settings};
use levada_swarm::mode::Mode;
use levada_transport::{Tcp, Transport};
use serde_json::json;
use tokio::sync::Semaphore;

use super::network::{ByUdp, bind};
use super::{clock_seconds, cpu_seconds, questions, say, write_content};
use crate::limits::allow_sockets;

/// Connections whose handshakes run at a time.
const HANDSHAKES: usize = 256;

#[derive(clap::Args)]
pub struct Arguments {
    /// The length of the content in bytes
    length: usize,
    /// The bytes of a chunk
    chunk: u32,
    /// Mediated mode, with so many chunks in the cache
    #[arg(long)]
    cache: Option<usize>,
    /// Mediated mode: so many peers are there before the first chunk is sent
    #[arg(long, default_value_t = 1)]
    wait: usize,
    /// Mediated mode: in blocks rather than stripes
    #[arg(long)]
    blocks: bool,
    /// The stream that goes by UDP
    #[arg(long)]
    udp: Option<ByUdp>,
    /// The core that it runs on
    #[arg(long)]
    core: Option<usize>,
}

impl Arguments {
    fn mode(&self) -> Mode {
        let placement = if self.blocks { Placement::Blocks } else { Placement::Stripes };
        let wait = self.wait;
        let settings = |cache| Settings { cache, wait, placement, ..Settings::default() };
        self.cache.map_or(Mode::Direct, |cache| Mode::Mediated(settings(cache)))
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    allow_sockets()?;
    // Threads that are started later run there, too.
    arguments.core.map_or(Ok(()), pin)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let path = folder.path().join("content");
    write_content(&path, arguments.length, arguments.chunk)?;
    let source = Arc::new(Source::open(&[path], ChunkSize::new(arguments.chunk)?)?);
    let options = ShareOptions {
        name: "content".into(),
        mode: arguments.mode(),
        udp: arguments.udp.map(Into::into),
        upload_limit: None,
        seed: 1,
    };
    let share = Arc::new(Share::start(source, options));
    let key = SecretKey::generate(&SystemRandom)?;
    let config = Arc::new(ServerConfig::new(&key)?);
    let (listener, mut quic) = bind(arguments.udp.is_some()).await?;
    say(&listener.local_addr()?.to_string())?;
    say(&key.identity().to_string())?;
    let mut questions = questions();
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let transport: Box<dyn Transport> = tokio::select! {
            accepted = listener.accept() => Box::new(Tcp::new(accepted?.0)?),
            Some(accepted) = quic.accept() => Box::new(accepted),
            question = questions.recv() => match question {
                Some(()) => {
                    say(&state(&share).await)?;
                    continue;
                }
                None => return Ok(()),
            }
        };
        let config = config.clone();
        let share = share.clone();
        let handshakes = handshakes.clone();
        tokio::spawn(async move {
            let permit = handshakes.acquire_owned().await;
            // Its memory is given back when the handshake is over.
            let link = Box::pin(opened(transport, &config)).await;
            drop(permit);
            if let Some((connection, link)) = link {
                let _ = share.serve(connection.peer(), link).await;
            }
        });
    }
}

async fn state(share: &Share) -> String {
    let status = share.status().await;
    let counters = status.counters;
    json!({
        "peers": status.peers.len(),
        "cpu": cpu_seconds(),
        "over_udp": status.over_udp.len(),
        "distributed": status.distributed_for.map(|ago| clock_seconds() - ago.as_secs_f64()),
        "fetches": counters.fetches,
        "loads": counters.loads,
        "sent": counters.sent,
    })
    .to_string()
}

async fn opened(
    transport: Box<dyn Transport>,
    config: &ServerConfig,
) -> Option<(Connection, Link)> {
    let connection = accept(transport, config, Options::default()).await.ok()?;
    let mut control = connection.accept().await?;
    let mut data = connection.accept().await?;
    control.receive(1).await.ok()?;
    data.receive(1).await.ok()?;
    Some((connection, Link { control, data }))
}
