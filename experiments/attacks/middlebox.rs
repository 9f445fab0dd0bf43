//! Attacks on a middlebox: connections that say nothing, and heads of requests in records of one
//! byte.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use levada_client::{Client, Target as Node};
use levada_services::http::{Strategy, contexts};
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use super::peer::{dial, repeat, spawn_all};
use super::victim::Target;

/// Silent connections: more than a middlebox has unfinished handshakes.
const SILENT: usize = 600;
/// Their sources.
const SOURCES: usize = 4;
/// How long one is kept.
const KEPT: Duration = Duration::from_secs(60);
/// Sessions that send heads.
const SESSIONS: usize = 3;
/// The length of a head, in bytes: just below the longest one.
const HEAD: usize = 63 * 1024;
/// Records between two pauses, and a pause: about 10 Mbit/s of all sessions together. Without a
/// limit, the attacker's own thread and the transport of its records use both cores, as any upload
/// from the same machine does.
const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);
/// The context of the heads of requests.
const REQUEST_HEAD: u8 = 1;

/// Holds silent connections until dropped; counts those that were opened.
pub async fn be_silent(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |number: usize| {
        let target = target.clone();
        let source = Ipv4Addr::new(127, 0, 0, 2 + (number % SOURCES) as u8);
        async move { repeat(async || hold(&target, source).await).await }
    };
    spawn_all(SILENT, one).await;
    Ok(())
}

async fn hold(target: &Target, source: Ipv4Addr) -> anyhow::Result<()> {
    let middlebox = target.middlebox.as_ref().context("there is no middlebox")?;
    let mut stream = dial(source, middlebox.address).await?;
    target.count();
    if timeout(KEPT, stream.read(&mut [0])).await.is_ok() {
        bail!("the middlebox has closed the connection");
    }
    Ok(())
}

/// Sends heads in records of one byte until dropped; counts records.
pub async fn send_bytes(target: Arc<Target>) -> anyhow::Result<()> {
    let client = Arc::new(Client::new(&target.guest)?);
    let one = |_| {
        let target = target.clone();
        let client = client.clone();
        async move { repeat(async || send_head(&target, &client).await).await }
    };
    spawn_all(SESSIONS, one).await;
    Ok(())
}

async fn send_head(target: &Target, client: &Client) -> anyhow::Result<()> {
    let middlebox = target.middlebox.as_ref().context("there is no middlebox")?;
    let node = Node::typed(target.identity, &target.address.to_string());
    let hop = Node::typed(middlebox.identity, &middlebox.address.to_string());
    let contexts = contexts(Strategy::Four, false, &["request-head=r"])?;
    let session = client.start_through(&node, "web", &[hop], contexts).await?;
    session.begin(REQUEST_HEAD)?;
    let head = b"GET /a\r\nx-long: ".iter().chain(std::iter::repeat_n(&b'a', HEAD));
    for (number, byte) in head.enumerate() {
        if number % BURST == 0 {
            sleep(PAUSE).await;
        }
        session.write(REQUEST_HEAD, &[*byte]).await?;
        session.flush()?;
        target.count();
    }
    Ok(())
}
