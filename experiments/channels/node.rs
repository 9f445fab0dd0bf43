//! The path through a real node: its `echo` service, started with a capability.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use levada_client::{Client, RequestSpec, Target};
use levada_core::Params;
use levada_home::Home;
use levada_node::Overrides;
use levada_node::running::{self, Announcement};
use levada_service::stdio::Tag;
use levada_session::{ReceiveHalf, SendHalf};
use tokio::sync::oneshot;

use super::ends::{Meter, block_on};
use super::levada::PART;

/// The time limit for the node's start.
const START: Duration = Duration::from_secs(10);

/// The near end's part: the shared home, and the node's announcement when it is up.
pub struct Near {
    home: Home,
    up: mpsc::Receiver<Announcement>,
    /// Dropped when the near end ends.
    _done: oneshot::Sender<()>,
}

/// The far end's part: the home, which is deleted after the near end has ended.
pub struct Far {
    folder: tempfile::TempDir,
    home: Home,
    up: mpsc::SyncSender<Announcement>,
    done: oneshot::Receiver<()>,
}

/// Makes the two parts.
pub fn pair() -> anyhow::Result<(Near, Far)> {
    let folder = tempfile::tempdir()?;
    let home = Home::at(folder.path())?;
    let (announce, up) = mpsc::sync_channel(1);
    let (end, done) = oneshot::channel();
    let near = Near { home: home.clone(), up, _done: end };
    Ok((near, Far { folder, home, up: announce, done }))
}

/// Sends messages to `echo` and receives them back until stopped. Received bytes are counted twice,
/// for the node and for the client.
pub fn send(near: Near, message: &[u8], meter: &Meter) -> anyhow::Result<()> {
    let announced = near.up.recv_timeout(START).context("the node did not start")?;
    block_on(async {
        let client = Client::new(&near.home)?;
        let typed = |one: &String| Target::typed(announced.identity, one).addresses;
        let addresses = announced.addresses.iter().flat_map(typed).collect();
        let target = Target { identity: announced.identity, addresses };
        let spec = RequestSpec {
            service: "echo".into(),
            params: Params::default(),
            uses: 1,
            ..RequestSpec::default()
        };
        let capability = client.request(&target, spec).await?;
        let running = client.connect(&capability).await?;
        let (mut send, mut receive) = running.stream.split();
        meter.start();
        let ended = tokio::select! {
            ended = send_messages(&mut send, message, meter) => ended,
            ended = receive_echo(&mut receive, meter) => ended,
        };
        client.close();
        ended
    })
}

async fn send_messages(send: &mut SendHalf, message: &[u8], meter: &Meter) -> anyhow::Result<()> {
    let tagged = [&[Tag::Data as u8], message].concat();
    while !meter.stopped() {
        send.send(&tagged).await?;
    }
    Ok(())
}

async fn receive_echo(receive: &mut ReceiveHalf, meter: &Meter) -> anyhow::Result<()> {
    let mut part = vec![0; PART];
    let mut first = true;
    while let Some((length, end)) = receive.read(&mut part).await? {
        meter.count(2 * (length - usize::from(first)));
        first = end;
    }
    Ok(())
}

/// Runs the node on `address` until the near end has ended.
pub fn serve(far: Far, address: SocketAddr, meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let overrides = Overrides {
            name: Some("echo".into()),
            listen: vec![SocketAddr::new(address.ip(), 0)],
            http: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            no_announce: true,
            ..Overrides::default()
        };
        let announce = |announced: &Announcement| {
            meter.start();
            // The near end may have failed already.
            let _ = far.up.send(announced.clone());
        };
        tokio::select! {
            ended = running::up(&far.home, &overrides, announce) => ended?,
            _ = far.done => {}
        }
        Ok(())
    })?;
    far.folder.close().context("the node's home")
}
