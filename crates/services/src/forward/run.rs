//! One session: connections are carried, each on a stream of its own, until the client ends it.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use levada_service::stdio::{Inbox, Message, StdioError};
use levada_service::streams::Opener;
use levada_service::{ServiceError, Streams, exit, fail};
use levada_session::{Class, ReceiveHalf, Stream, StreamError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::{Address, MAX_ADDRESS};
use super::connect::Connector;
use super::message::{Cause, Failure};
use super::pump::{carry, carry_accepted};
use super::socket::{Listener, Socket};
use super::udp;

/// How long a client may take to name an address on a stream that it has opened.
const ADDRESS: Duration = Duration::from_secs(10);

/// Connections that came in at this side and wait for a place, of one session. More wait to be accepted.
const WAITING: usize = 64;

/// What sessions of one service share.
#[derive(Clone)]
pub(super) struct Shared {
    /// Places for connections.
    pub(super) places: Arc<Semaphore>,
    /// Places for names that are looked up.
    pub(super) lookups: Arc<Semaphore>,
    /// How long a connection waits for a place.
    pub(super) wait: Duration,
    /// How long a flow of datagrams may be silent.
    pub(super) idle: Duration,
}

/// Carries connections that the client asks for.
pub(super) async fn connect(
    shared: &Shared,
    connector: Connector,
    mut streams: Streams,
    stream: Stream,
) -> Result<(), ServiceError> {
    let (send, mut receive) = stream.split();
    // Dropped, it ends all that it holds.
    let mut carried = JoinSet::new();
    let mut control = Control::default();
    loop {
        tokio::select! {
            ended = control.ended(&mut receive) => break ended?,
            stream = streams.accept() => {
                carried.spawn(serve(shared.clone(), connector.clone(), stream));
            }
            Some(_) = carried.join_next() => {}
        }
    }
    drop((streams, carried));
    Ok(exit(send, receive, 0).await?)
}

/// Carries connections that come to `address` to the client.
pub(super) async fn listen(
    shared: &Shared,
    address: &Address,
    mut streams: Streams,
    stream: Stream,
) -> Result<(), ServiceError> {
    let listener = match Listener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            let text = format!("cannot listen at {address}: {error}");
            return fail(stream, ServiceError::Failed(text)).await;
        }
    };
    let (mut send, mut receive) = stream.split();
    let line = format!("{}\n", listener.address());
    send.send(&Message::Data(line.as_bytes()).to_bytes()).await?;
    let mut carried = JoinSet::new();
    let mut control = Control::default();
    let waiting = Arc::new(Semaphore::new(WAITING));
    let mut turn = None;
    loop {
        tokio::select! {
            ended = control.ended(&mut receive) => break ended?,
            Ok(next) = waiting.clone().acquire_owned(), if turn.is_none() => turn = Some(next),
            (socket, peer) = listener.accept(), if turn.is_some() => {
                carried.spawn(bring(shared.clone(), streams.opener(), socket, peer, turn.take()));
            }
            // The client has nothing to ask for here.
            stream = streams.accept() => drop(stream),
            Some(_) = carried.join_next() => {}
        }
    }
    drop((streams, carried, listener));
    Ok(exit(send, receive, 0).await?)
}

/// What the client says on the session's first stream: nothing, until it ends its input.
#[derive(Default)]
struct Control(Inbox);

impl Control {
    async fn ended(&mut self, receive: &mut ReceiveHalf) -> Result<(), ServiceError> {
        loop {
            match self.0.next(receive).await? {
                Some(Message::End) => return Ok(()),
                // Typed into `levada connect`, or a terminal that has changed.
                Some(Message::Data(_) | Message::Window(_)) => {}
                Some(_) => return Err(StdioError::Direction.into()),
                None => return Err(ServiceError::Gone),
            }
        }
    }
}

/// One connection that the client asks for.
async fn serve(shared: Shared, connector: Connector, mut stream: Stream) {
    let Ok(address) = named(&mut stream).await else { return };
    let place = match &address {
        Ok(_) => shared.place_in_turn().await,
        Err(_) => None,
    };
    // How it ended is for the client to know: a connection that was cut is no fault of the session.
    let _ = match (address, place) {
        (Err(failure), _) => carry_accepted(stream, Err(failure)).await,
        (_, None) => carry_accepted(stream, Err(busy())).await,
        (Ok(address), Some(_place)) => match address.udp_place() {
            Some(place) => {
                let connected = connector.connect_udp(&address, place).await;
                udp::carry(stream, connected, shared.idle).await
            }
            None => carry_accepted(stream, connector.connect(&address).await).await,
        },
    };
}

/// The address that the client names; the outer error is that of a client that names none in time.
async fn named(stream: &mut Stream) -> Result<Result<Address, Failure>, StreamError> {
    let received = timeout(ADDRESS, stream.receive(MAX_ADDRESS)).await;
    let bytes = received.map_err(|_| StreamError::Finished)??.ok_or(StreamError::Finished)?;
    let failure = |text: &dyn Display| Failure::new(Cause::NotAllowed, text);
    let Ok(text) = str::from_utf8(&bytes) else { return Ok(Err(failure(&"no address"))) };
    Ok(text.parse().map_err(|error: super::address::AddressError| failure(&error)))
}

impl Shared {
    /// A place for a connection: one more than there are waits for a while, in the order in which they came.
    async fn place_in_turn(&self) -> Option<OwnedSemaphorePermit> {
        timeout(self.wait, self.places.clone().acquire_owned()).await.ok()?.ok()
    }
}

/// One connection that has come to this side; if it cannot be brought to the client, it is reset. `turn` is its place among
/// those that wait.
async fn bring(
    shared: Shared,
    opener: Opener,
    socket: Socket,
    peer: String,
    turn: Option<OwnedSemaphorePermit>,
) {
    let Some(_place) = shared.place_in_turn().await else { return };
    let Ok(mut stream) = opener.open_in_turn(Class::Bulk).await else { return };
    drop(turn);
    if stream.send(peer.as_bytes()).await.is_ok() {
        let _ = carry(socket, stream, true).await;
    }
}

fn busy() -> Failure {
    Failure::new(Cause::Busy, "the service carries as many connections as it may")
}
