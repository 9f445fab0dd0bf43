//! One session: carries connections, each on its own stream, until the client ends the session.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use levada_service::stdio::{Message, MessageReader, StdioError};
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

/// How long a client may take to send an address on a stream that it has opened.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections of one session that were accepted here and wait for a permit. Further ones wait in
/// the listener's backlog.
const MAX_WAITING: usize = 64;

/// What the sessions of one service share.
#[derive(Clone)]
pub(super) struct Shared {
    /// Limits the connections.
    pub(super) connections: Arc<Semaphore>,
    /// Limits the concurrent lookups of names.
    pub(super) lookups: Arc<Semaphore>,
    /// How long a connection waits for a permit.
    pub(super) wait: Duration,
    /// The idle timeout of a flow of datagrams.
    pub(super) idle: Duration,
}

/// Carries the connections that the client requests.
pub(super) async fn connect(
    shared: &Shared,
    connector: Connector,
    mut streams: Streams,
    stream: Stream,
) -> Result<(), ServiceError> {
    let (send, mut receive) = stream.split();
    // Dropping the set aborts its tasks.
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

/// Carries the connections that are accepted at `address` to the client.
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
    let waiting = Arc::new(Semaphore::new(MAX_WAITING));
    let mut slot = None;
    loop {
        tokio::select! {
            ended = control.ended(&mut receive) => break ended?,
            Ok(next) = waiting.clone().acquire_owned(), if slot.is_none() => slot = Some(next),
            (socket, peer) = listener.accept(), if slot.is_some() => {
                let opener = streams.opener();
                carried.spawn(carry_to_client(shared.clone(), opener, socket, peer, slot.take()));
            }
            // The client may not request connections in this session.
            stream = streams.accept() => drop(stream),
            Some(_) = carried.join_next() => {}
        }
    }
    drop((streams, carried, listener));
    Ok(exit(send, receive, 0).await?)
}

/// The client's messages on the session's first stream: only the end of its input matters.
#[derive(Default)]
struct Control(MessageReader);

impl Control {
    async fn ended(&mut self, receive: &mut ReceiveHalf) -> Result<(), ServiceError> {
        loop {
            match self.0.next(receive).await? {
                Some(Message::End) => return Ok(()),
                // Text that was typed into `levada connect`, and new sizes of its terminal.
                Some(Message::Data(_) | Message::Window(_)) => {}
                Some(_) => return Err(StdioError::Direction.into()),
                None => return Err(ServiceError::Gone),
            }
        }
    }
}

/// Serves one connection that the client requests.
async fn serve(shared: Shared, connector: Connector, mut stream: Stream) {
    let Ok(address) = receive_address(&mut stream).await else { return };
    let permit = match &address {
        Ok(_) => shared.connection_permit().await,
        Err(_) => None,
    };
    // The client learns how the connection ended. A cut connection is not an error of the session.
    let _ = match (address, permit) {
        (Err(failure), _) => carry_accepted(stream, Err(failure)).await,
        (_, None) => carry_accepted(stream, Err(busy())).await,
        (Ok(address), Some(_permit)) => match address.udp_target() {
            Some(target) => {
                let connected = connector.connect_udp(&address, target).await;
                udp::carry(stream, connected, shared.idle).await
            }
            None => carry_accepted(stream, connector.connect(&address).await).await,
        },
    };
}

/// The address that the client sends; the outer error means that it sent none in time.
async fn receive_address(stream: &mut Stream) -> Result<Result<Address, Failure>, StreamError> {
    let received = timeout(ADDRESS_TIMEOUT, stream.receive(MAX_ADDRESS)).await;
    let bytes = received.map_err(|_| StreamError::Finished)??.ok_or(StreamError::Finished)?;
    let failure = |text: &dyn Display| Failure::new(Cause::NotAllowed, text);
    let Ok(text) = str::from_utf8(&bytes) else {
        return Ok(Err(failure(&"the address is not UTF-8")));
    };
    Ok(text.parse().map_err(|error: super::address::AddressError| failure(&error)))
}

impl Shared {
    /// A permit for a connection: above the limit, it waits for up to [`Self::wait`], in order of
    /// arrival.
    async fn connection_permit(&self) -> Option<OwnedSemaphorePermit> {
        timeout(self.wait, self.connections.clone().acquire_owned()).await.ok()?.ok()
    }
}

/// Carries one accepted connection to the client, or resets it. `slot` counts it among the waiting
/// ones.
async fn carry_to_client(
    shared: Shared,
    opener: Opener,
    socket: Socket,
    peer: String,
    slot: Option<OwnedSemaphorePermit>,
) {
    let Some(_permit) = shared.connection_permit().await else { return };
    let Ok(mut stream) = opener.open_or_wait(Class::Bulk).await else { return };
    drop(slot);
    if stream.send(peer.as_bytes()).await.is_ok() {
        let _ = carry(socket, stream, true).await;
    }
}

fn busy() -> Failure {
    Failure::new(Cause::Busy, "the service has reached its limit of connections")
}
