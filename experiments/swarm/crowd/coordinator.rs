//! The coordinator: one thread.

use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use levada_core::{SecretKey, SystemRandom};
use levada_session::{Options, ServerConfig, accept};
use levada_swarm::ChunkSize;
use levada_swarm::content::Source;
use levada_swarm::driver::{Link, Share, ShareOptions};
use levada_swarm::mode::Mode;
use levada_transport::Tcp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, channel};

use super::LENGTH;
use crate::limits::allow_sockets;

/// Connections whose handshakes run at a time.
const HANDSHAKES: usize = 256;

pub(super) fn run() -> anyhow::Result<()> {
    allow_sockets()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve())
}

async fn serve() -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new_in("/dev/shm")?;
    let path = folder.path().join("content");
    fs::write(&path, vec![7; LENGTH])?;
    let source = Arc::new(Source::open(&[path], ChunkSize::new(1024)?)?);
    let options = ShareOptions {
        name: "content".into(),
        mode: Mode::Direct,
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
    let handshakes = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES));
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
                Some(()) => say(&share.status().await.peers.len().to_string())?,
                None => return Ok(()),
            }
        }
    }
}

async fn opened(
    socket: TcpStream,
    config: &ServerConfig,
) -> Option<(levada_session::Connection, Link)> {
    let transport = Box::new(Tcp::new(socket).ok()?);
    let connection = accept(transport, config, Options::default()).await.ok()?;
    let mut control = connection.accept().await?;
    let mut data = connection.accept().await?;
    control.receive(1).await.ok()?;
    data.receive(1).await.ok()?;
    Some((connection, Link { control, data }))
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush().context("write to standard output")
}

/// A question for each line of standard input.
fn questions() -> Receiver<()> {
    let (sender, receiver) = channel(1);
    thread::spawn(move || {
        for _ in stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(()).is_err() {
                return;
            }
        }
    });
    receiver
}
