//! Connections between peers: both sides know each other's identity from the coordinator.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use levada_core::Identity;
use levada_session::{Class, Connection, SessionError, Stream};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::timeout;

use super::Link;
use super::events::Event;

/// How long the first messages of a connection may take.
const MEETING_TIMEOUT: Duration = Duration::from_secs(10);
/// The first messages of the two streams.
const CONTROL: &[u8] = b"control";
const DATA: &[u8] = b"data";

/// Connects to a peer that must prove the identity, at one of the addresses.
pub type Dial = Arc<dyn Fn(Identity, Vec<String>) -> DialFuture + Send + Sync>;

/// The future of a [`Dial`].
pub type DialFuture = Pin<Box<dyn Future<Output = Result<Connection, SessionError>> + Send>>;

/// How a peer reaches others, and they it.
pub struct Network {
    /// Connects to other peers.
    pub dial: Dial,
    /// Connections that other peers have made. Their identities are proved; whether they may connect is decided here.
    pub incoming: Receiver<Connection>,
    /// Where this peer listens, `host:port`.
    pub addresses: Vec<String>,
}

/// Connects and opens the two streams.
pub(super) async fn dial(dial: Dial, identity: Identity, addresses: Vec<String>) -> Option<Link> {
    let meet = async {
        let connection = dial(identity, addresses).await.ok()?;
        let mut control = connection.open(Class::Interactive).ok()?;
        let mut data = connection.open(Class::Bulk).ok()?;
        control.send(CONTROL).await.ok()?;
        data.send(DATA).await.ok()?;
        Some(Link { control, data })
    };
    timeout(MEETING_TIMEOUT, meet).await.ok().flatten()
}

/// Waits for the two streams of an incoming connection, and reports them.
pub(super) async fn accept(connection: Connection, events: Sender<Event>) {
    let identity = connection.peer();
    let meet = async {
        let (one, other) = (first(&connection).await?, first(&connection).await?);
        let (control, data) = match (one.1, other.1) {
            (true, false) => (one.0, other.0),
            (false, true) => (other.0, one.0),
            _ => return None,
        };
        Some(Link { control, data })
    };
    if let Ok(Some(link)) = timeout(MEETING_TIMEOUT, meet).await {
        let _ = events.send(Event::Incoming(identity, link)).await;
    }
}

/// The next stream, and whether it is for control messages.
async fn first(connection: &Connection) -> Option<(Stream, bool)> {
    let mut stream = connection.accept().await?;
    match stream.receive(CONTROL.len()).await.ok()??.as_slice() {
        CONTROL => Some((stream, true)),
        DATA => Some((stream, false)),
        _ => None,
    }
}
