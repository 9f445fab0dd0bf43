//! Connections: one for each node that its sessions with `auto` framing share, and dedicated ones
//! for `block:N`, for sessions with further streams, and for bulk while the shared one is in use.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use levada_channel::ClientConfig;
use levada_core::{Framing, Identity, Succession};
use levada_session::{Connection, SessionError, connect};
use levada_transport::quic::Endpoint;
use levada_transport::{Transport, connect_tcp};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::dial_error::{self, DIAL_TIMEOUT, DialError};
use super::remember::remember_address;
use super::{Client, ClientError, Target};
use levada_home::address;

/// The delay between the attempts at two addresses (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// Maximum number of retries of a handshake that was cut.
const MAX_RETRIES: u32 = 8;
/// The pause before each retry.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// What carries a new connection.
#[derive(Clone)]
pub enum Over {
    /// TCP.
    Tcp,
    /// QUIC, from this endpoint.
    Udp(Endpoint),
}

impl Client {
    /// A connection to `target` with `framing`: with `auto` the shared one if it is open, otherwise
    /// a new one.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] if no address answers; [`ClientError::OtherKey`] if only other
    /// keys do.
    pub async fn connection(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<Connection, ClientError> {
        if framing == Framing::Auto
            && let Some(connection) = self.connections().get(&target.identity)
            && connection.is_open()
        {
            return Ok(connection.clone());
        }
        Ok(self.new_connection(target, framing).await?.0)
    }

    /// A new connection and the address that answered. With `auto` it becomes the shared one.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub(super) async fn new_connection(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, String), ClientError> {
        let (connection, address) = self.connect_at(target, framing).await?;
        if framing == Framing::Auto {
            self.connections().insert(connection.peer(), connection.clone());
        }
        Ok((connection, address))
    }

    /// Takes the shared connection to `node` out of the shared ones, if it has no streams.
    pub(super) fn unused_connection(&self, node: &Identity) -> Option<Connection> {
        let mut shared = self.connections();
        let unused = |connection: &&Connection| connection.is_open() && connection.streams() == 0;
        shared.get(node).filter(unused)?;
        shared.remove(node)
    }

    /// Refuses a key that was rotated away: the old key may be in other hands.
    async fn refuse_rotated(&self, identity: Identity) -> Result<(), ClientError> {
        match self.with_known(move |known| known.successor(&identity)).await? {
            Some(new) => Err(ClientError::Denied(format!(
                "the key {identity} was rotated away; its successor is {new}"
            ))),
            None => Ok(()),
        }
    }

    /// A new connection that is not shared. It resumes an earlier one if there is a TLS ticket.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub async fn dedicated_connection(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<Connection, ClientError> {
        Ok(self.connect_at(target, framing).await?.0)
    }

    /// A connection to a party that is no node, such as another peer of a share. Nothing about it
    /// is stored here.
    ///
    /// # Errors
    /// [`SessionError`] of the most specific failure.
    pub async fn connect_to_peer(
        &self,
        target: &Target,
        over: &Over,
    ) -> Result<Connection, SessionError> {
        let identity = Some(target.identity);
        let dialled = dial_over(over, &self.tls, target, identity, Framing::Auto).await;
        dialled.map(|(connection, _)| connection).map_err(DialError::into_session_error)
    }

    /// As [`Self::dedicated_connection`]. Also returns the address that answered, which is the only
    /// proven one of announced addresses.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub(super) async fn connect_at(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, String), ClientError> {
        self.refuse_rotated(target.identity).await?;
        let (connection, address) = self.dial_or_follow(target, framing).await?;
        let successions = self.store_reached(&connection, &address).await?;
        self.announce(&connection, successions).await?;
        Ok((connection, address))
    }

    /// Connects. If nodes present other keys than the expected one, asks each for the proof that
    /// its key succeeds that one, and follows the first valid proof.
    pub(super) async fn dial_or_follow(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, String), ClientError> {
        let failure = match dial(&self.tls, target, Some(target.identity), framing).await {
            Ok(found) => return Ok(found),
            Err(failure) => failure,
        };
        for (address, presented) in failure.others() {
            let there = Target { identity: target.identity, addresses: vec![address.clone()] };
            if let Some(Target { identity, .. }) = self.follow(&there, *presented).await? {
                let target = Target { identity, addresses: target.addresses.clone() };
                return Ok(dial(&self.tls, &target, Some(identity), framing).await?);
            }
        }
        Err(failure.into())
    }

    /// Stores in the pin of the node that it was reached at `address`. Returns the rotations of
    /// this home that the node has not acknowledged.
    async fn store_reached(
        &self,
        connection: &Connection,
        address: &str,
    ) -> Result<Vec<Succession>, ClientError> {
        let own = self.identity();
        let node = connection.peer();
        let address = address.to_owned();
        let now = self.now();
        self.with_known(move |known| {
            remember_address(known, &node, &address, now);
            known.unacknowledged(own, &node)
        })
        .await
    }
}

/// As [`dial_over`], over TCP.
pub(super) async fn dial(
    tls: &Arc<ClientConfig>,
    target: &Target,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<(Connection, String), DialError> {
    dial_over(&Over::Tcp, tls, target, expected, framing).await
}

/// Tries every address, each [`STAGGER`] after the one before, or once one has failed. Returns the
/// first connection whose handshake succeeds, and its address. A wrong key at one address does not
/// end the attempts at the others.
async fn dial_over(
    over: &Over,
    tls: &Arc<ClientConfig>,
    target: &Target,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<(Connection, String), DialError> {
    let usable: Vec<&String> =
        target.addresses.iter().filter(|one| address::is_usable(one)).collect();
    if usable.is_empty() {
        let text = match target.addresses.as_slice() {
            [] => format!("no address is known for {}", target.identity),
            _ => format!("all addresses known for {} are of another machine", target.identity),
        };
        return Err(DialError::without_address(text));
    }
    let attempts = usable.into_iter().map(|address| {
        let over = over.clone();
        let tls = tls.clone();
        let address = address.clone();
        async move {
            let connection = dial_address(&over, &address, &tls, expected, framing).await?;
            Ok((connection, address))
        }
    });
    race(attempts).await
}

/// Resolves one address, and tries all socket addresses of it.
async fn dial_address(
    over: &Over,
    address: &str,
    tls: &Arc<ClientConfig>,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<Connection, DialError> {
    let sockets =
        address::resolve(address).await.map_err(|error| DialError::unresolved(address, &error))?;
    race(sockets.into_iter().map(|socket| {
        let over = over.clone();
        let tls = tls.clone();
        let address = address.to_owned();
        async move {
            let dialled = dial_one(&over, socket, &tls, expected, framing).await;
            dialled.map_err(|error| DialError::at(&address, socket, error))
        }
    }))
    .await
}

/// The first attempt that succeeds. Each begins [`STAGGER`] after the one before, or as soon as one
/// fails.
async fn race<F, T>(attempts: impl Iterator<Item = F>) -> Result<T, DialError>
where
    F: Future<Output = Result<T, DialError>> + Send + 'static,
    T: Send + 'static,
{
    let mut attempts: VecDeque<F> = attempts.collect();
    let mut running = JoinSet::new();
    let mut failure: Option<DialError> = None;
    loop {
        if let Some(attempt) = attempts.pop_front() {
            running.spawn(attempt);
        }
        let stagger = if attempts.is_empty() { Duration::MAX } else { STAGGER };
        match timeout(stagger, running.join_next()).await {
            Ok(Some(Ok(Ok(found)))) => return Ok(found),
            Ok(Some(Ok(Err(new)))) => {
                failure = Some(match failure {
                    Some(known) => known.merge(new),
                    None => new,
                });
            }
            Ok(None) if attempts.is_empty() => {
                return Err(failure.unwrap_or_else(DialError::closed));
            }
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

/// Tries one socket address. Retries a handshake that was cut, because a node under attack drops
/// its oldest unfinished handshakes, and this one may be among them.
async fn dial_one(
    over: &Over,
    address: SocketAddr,
    tls: &ClientConfig,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<Connection, SessionError> {
    let mut retries = 0;
    loop {
        let transport = over
            .connect(address)
            .await
            .map_err(|error| SessionError::Transport(dial_error::reason(&error)))?;
        match connect(transport, tls, expected, Client::options(framing)).await {
            Err(
                SessionError::Channel(levada_channel::Error::Truncated)
                | SessionError::Transport(_),
            ) if retries < MAX_RETRIES => {
                retries += 1;
                sleep(RETRY_PAUSE).await;
            }
            other => return other,
        }
    }
}

impl Over {
    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Transport>> {
        Ok(match self {
            Self::Tcp => Box::new(connect_tcp(address, DIAL_TIMEOUT).await?),
            Self::Udp(endpoint) => Box::new(endpoint.connect(address, DIAL_TIMEOUT).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// An attempt that ends after a time, and whether it succeeds.
    async fn attempt(seconds: u64, succeeds: bool) -> Result<u64, DialError> {
        sleep(Duration::from_secs(seconds)).await;
        if succeeds { Ok(seconds) } else { Err(DialError::without_address(format!("{seconds}"))) }
    }

    async fn timed(attempts: &[(u64, bool)]) -> (Result<u64, DialError>, Duration) {
        let start = Instant::now();
        let result = race(attempts.iter().map(|(seconds, ok)| attempt(*seconds, *ok))).await;
        (result, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_is_tried_as_soon_as_one_has_failed() {
        let (found, took) = timed(&[(0, false), (0, false), (0, true)]).await;
        assert_eq!((found.ok(), took), (Some(0), Duration::ZERO));
        let (found, took) = timed(&[(9, true), (9, false), (1, true)]).await;
        assert_eq!((found.ok(), took), (Some(1), STAGGER * 2 + Duration::from_secs(1)));
        let (found, took) = timed(&[(1, false), (3, false)]).await;
        assert_eq!((found.is_err(), took), (true, STAGGER + Duration::from_secs(3)));
        assert!(timed(&[]).await.0.is_err());
    }
}
