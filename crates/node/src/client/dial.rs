//! Connections: one shared by all sessions with `auto` framing, one of its own for each `block:N`.

use std::sync::Arc;
use std::time::Duration;

use levada_channel::ClientConfig;
use levada_core::{Framing, Identity};
use levada_link::connect_tcp;
use levada_session::{Connection, SessionError, connect};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Client, ClientError, Target};

/// How long one address may take to accept a TCP connection.
const DIAL: Duration = Duration::from_secs(5);
/// How long the next address waits for the one before it (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// How often a handshake that was cut is tried again, and after which pause.
const CUTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(20);

impl Client {
    /// A connection to `target` with `framing`: the shared one if it is `auto` and alive, a new one otherwise.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if no address answers; [`ClientError::OtherKey`] if only another key does.
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

    /// A new connection, which with `auto` is the shared one from then on, and the address that answered.
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

    /// The shared connection to `node`, if there is one that nothing uses: it is shared no more.
    pub(super) fn unused_connection(&self, node: &Identity) -> Option<Connection> {
        let mut shared = self.connections();
        let unused = |connection: &&Connection| connection.is_open() && connection.streams() == 0;
        shared.get(node).filter(unused)?;
        shared.remove(node)
    }

    /// Whoever still has a key that was rotated away is not the node that it was.
    fn refuse_dead(&self, identity: &Identity) -> Result<(), ClientError> {
        match self.known.successor(identity).map_err(ClientError::local)? {
            Some(new) => Err(ClientError::Denied(format!(
                "the key {identity} was rotated away; {new} has taken its place"
            ))),
            None => Ok(()),
        }
    }

    /// A new connection, by resumption where a ticket is at hand.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub async fn connection_of_its_own(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<Connection, ClientError> {
        Ok(self.connect_at(target, framing).await?.0)
    }

    /// As [`Self::connection_of_its_own`], with the address that answered: of those that were only announced,
    /// the one that is proven.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub(super) async fn connect_at(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, String), ClientError> {
        self.refuse_dead(&target.identity)?;
        let (connection, address) = self.dial_or_follow(target, framing).await?;
        self.announce_successions(&connection).await?;
        Ok((connection, address))
    }

    /// Connects; where the node presents another key than the pinned one, asks it for the proof that
    /// its key was rotated, and follows that once.
    async fn dial_or_follow(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, String), ClientError> {
        match dial(&self.tls, target, Some(target.identity), framing).await {
            Err(SessionError::WrongPeer { expected, presented }) => {
                let Some(target) = self.follow(target, presented).await? else {
                    return Err(SessionError::WrongPeer { expected, presented }.into());
                };
                Ok(dial(&self.tls, &target, Some(target.identity), framing).await?)
            }
            other => Ok(other?),
        }
    }
}

/// Tries every address, each a little after the one before, and takes the first whose handshake
/// succeeds; also gives that address. A wrong key at one does not hide the right one at another.
pub(super) async fn dial(
    tls: &Arc<ClientConfig>,
    target: &Target,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<(Connection, String), SessionError> {
    if target.addresses.is_empty() {
        let text = format!("no address is known for {}", target.identity);
        return Err(SessionError::Link(text));
    }
    let mut attempts = JoinSet::new();
    for (index, address) in target.addresses.iter().enumerate() {
        let (tls, address) = (tls.clone(), address.clone());
        attempts.spawn(async move {
            sleep(STAGGER * u32::try_from(index).unwrap_or(0)).await;
            let connection = dial_one(&address, &tls, expected, framing).await?;
            Ok::<_, SessionError>((connection, address))
        });
    }
    let mut worst = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => worst = Some(graver(worst, error)),
            Err(_) => {}
        }
    }
    Err(worst.unwrap_or(SessionError::Closed))
}

/// Tries one address, again if the handshake was cut short: a node under attack drops its oldest
/// unfinished handshakes, and an honest one may be among them.
async fn dial_one(
    address: &str,
    tls: &ClientConfig,
    expected: Option<Identity>,
    framing: Framing,
) -> Result<Connection, SessionError> {
    let mut cut = 0;
    loop {
        let link = connect_tcp(address, DIAL)
            .await
            .map_err(|error| SessionError::Link(format!("{address}: {error}")))?;
        match connect(Box::new(link), tls, expected, Client::options(framing)).await {
            Err(
                SessionError::Channel(levada_channel::Error::Truncated) | SessionError::Link(_),
            ) if cut < CUTS => {
                cut += 1;
                sleep(PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Of two failures the one that says more: somebody who answered wrongly over nobody.
fn graver(known: Option<SessionError>, new: SessionError) -> SessionError {
    match (known, new) {
        (Some(known @ SessionError::WrongPeer { .. }), _) => known,
        (Some(known), SessionError::Link(_)) => known,
        (_, new) => new,
    }
}
