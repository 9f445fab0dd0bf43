//! The coordinator: one thread, and those that read files.

use std::sync::Arc;

use levada_core::{SecretKey, SystemRandom};
use levada_harness::pin;
use levada_session::{Connection, Options, ServerConfig, accept};
use levada_swarm::ChunkSize;
use levada_swarm::content::Source;
use levada_swarm::driver::{Link, Share, ShareOptions};
use levada_swarm::mediated::Settings;
use levada_swarm::mode::Mode;
use levada_transport::Tcp;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{cpu_seconds, questions, say, write_content};
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
    /// The core that it runs on
    #[arg(long)]
    core: Option<usize>,
}

impl Arguments {
    fn mode(&self) -> Mode {
        let settings = |cache| Settings { cache, wait: self.wait, ..Settings::default() };
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
        udp: None,
        upload_limit: None,
        seed: 1,
    };
    let share = Arc::new(Share::start(source, options));
    let key = SecretKey::generate(&SystemRandom)?;
    let config = Arc::new(ServerConfig::new(&key)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&listener.local_addr()?.to_string())?;
    say(&key.identity().to_string())?;
    let mut questions = questions();
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                let (config, share, handshakes) = (config.clone(), share.clone(), handshakes.clone());
                tokio::spawn(async move {
                    let permit = handshakes.acquire_owned().await;
                    // Its memory is given back when the handshake is over.
                    let link = Box::pin(opened(socket, &config)).await;
                    drop(permit);
                    if let Some((connection, link)) = link {
                        let _ = share.serve(connection.peer(), link).await;
                    }
                });
            }
            question = questions.recv() => match question {
                Some(()) => say(&state(&share).await)?,
                None => return Ok(()),
            }
        }
    }
}

async fn state(share: &Share) -> String {
    let status = share.status().await;
    let counters = status.counters;
    json!({
        "peers": status.peers.len(),
        "cpu": cpu_seconds(),
        "fetches": counters.fetches,
        "loads": counters.loads,
        "sent": counters.sent,
    })
    .to_string()
}

async fn opened(socket: TcpStream, config: &ServerConfig) -> Option<(Connection, Link)> {
    let transport = Box::new(Tcp::new(socket).ok()?);
    let connection = accept(transport, config, Options::default()).await.ok()?;
    let mut control = connection.accept().await?;
    let mut data = connection.accept().await?;
    control.receive(1).await.ok()?;
    data.receive(1).await.ok()?;
    Some((connection, Link { control, data }))
}
