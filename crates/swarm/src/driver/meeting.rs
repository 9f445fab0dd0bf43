//! Connections between peers: both sides know each other's identity from the coordinator.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use levada_core::Identity;
use levada_session::{Class, Connection, SessionError, Stream};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::timeout;

use super::events::Event;
use super::link::Link;
use super::pairing::{Carries, Half, Pairing};
use crate::UdpStream;

/// How long the first messages of a connection may take.
const MEETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection over QUIC may take, until both streams go by TCP.
const UDP_TIMEOUT: Duration = Duration::from_secs(4);
/// The first message of the data stream, if both streams are of one connection.
const DATA: &[u8] = b"data";

/// Connects to a peer that must prove the identity, at one of the addresses.
pub type Dial = Arc<dyn Fn(Identity, Vec<String>) -> DialFuture + Send + Sync>;

/// The future of a [`Dial`].
pub type DialFuture = Pin<Box<dyn Future<Output = Result<Connection, SessionError>> + Send>>;

/// How a peer reaches others, and they it.
pub struct Network {
    /// Connects to other peers.
    pub dial: Dial,
    /// In a share with UDP, the stream that goes by it, and what connects over QUIC.
    pub udp: Option<(UdpStream, Dial)>,
    /// Connections that other peers have made. Their identities are proved; whether they may
    /// connect is decided here.
    pub incoming: Receiver<Connection>,
    /// Where this peer listens, `host:port`.
    pub addresses: Vec<String>,
}

/// What connects to a peer: over TCP, and in a share with UDP also over QUIC.
#[derive(Clone)]
pub(super) struct Dials {
    tcp: Dial,
    udp: Option<(UdpStream, Dial)>,
}

impl Network {
    pub(super) fn dials(&self) -> Dials {
        Dials { tcp: self.dial.clone(), udp: self.udp.clone() }
    }
}

/// Connects and opens the two streams.
pub(super) async fn dial(dials: Dials, identity: Identity, addresses: Vec<String>) -> Option<Link> {
    let meet = async {
        let Some((udp, dial)) = dials.udp else {
            return together((dials.tcp)(identity, addresses).await.ok()?).await;
        };
        let quic = timeout(UDP_TIMEOUT, dial(identity, addresses.clone()));
        let (tcp, quic) = tokio::join!((dials.tcp)(identity, addresses), quic);
        match quic {
            Ok(Ok(quic)) => split(&tcp.ok()?, &quic, udp).await,
            // UDP is often blocked.
            _ => together(tcp.ok()?).await,
        }
    };
    timeout(MEETING_TIMEOUT, meet).await.ok().flatten()
}

/// Opens both streams on one connection.
async fn together(connection: Connection) -> Option<Link> {
    let mut control = connection.open(Class::Interactive).ok()?;
    let mut data = connection.open(Class::Bulk).ok()?;
    control.send(Carries::Both.encode()).await.ok()?;
    data.send(DATA).await.ok()?;
    Some(Link { control, data })
}

/// Opens one stream on each connection, `udp` on that over QUIC.
async fn split(tcp: &Connection, quic: &Connection, udp: UdpStream) -> Option<Link> {
    let (of_control, of_data) = match udp {
        UdpStream::Control => (quic, tcp),
        UdpStream::Data => (tcp, quic),
    };
    let mut control = of_control.open(Class::Interactive).ok()?;
    let mut data = of_data.open(Class::Bulk).ok()?;
    control.send(Carries::Control.encode()).await.ok()?;
    data.send(Carries::Data.encode()).await.ok()?;
    Some(Link { control, data })
}

/// Waits for the streams of an incoming connection, and reports the link: of two streams, or of one
/// and that of another connection.
pub(super) async fn accept(connection: Connection, pairing: Arc<Pairing>, events: Sender<Event>) {
    let identity = connection.peer();
    let Ok(Some(met)) = timeout(MEETING_TIMEOUT, streams(&connection)).await else { return };
    let link = match met {
        Met::Link(link) => link,
        Met::Half(half) => match pairing.pair(identity, half).await {
            Some((link, _)) => link,
            None => return,
        },
    };
    let _ = events.send(Event::Incoming(identity, link)).await;
}

/// What an incoming connection carries.
enum Met {
    Link(Link),
    Half(Half),
}

async fn streams(connection: &Connection) -> Option<Met> {
    let (stream, first) = next(connection).await?;
    if first == DATA {
        let (control, second) = next(connection).await?;
        let is_control = Carries::decode(&second) == Some(Carries::Both);
        return is_control.then_some(Met::Link(Link { control, data: stream }));
    }
    match Carries::decode(&first)? {
        Carries::Control => Some(Met::Half(Half::Control(stream))),
        Carries::Data => Some(Met::Half(Half::Data(stream))),
        Carries::Both => {
            let (data, second) = next(connection).await?;
            (second == DATA).then_some(Met::Link(Link { control: stream, data }))
        }
    }
}

/// The next stream, and its first message.
async fn next(connection: &Connection) -> Option<(Stream, Vec<u8>)> {
    let mut stream = connection.accept().await?;
    let first = stream.receive(Carries::MAX).await.ok()??;
    Some((stream, first))
}
