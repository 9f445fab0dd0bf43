//! Connects to nodes that may have moved: first at the known addresses, then where the node's key
//! is announced. The handshake proves the key, so announcements need no authentication.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::Framing;
use levada_discovery::{DiscoveryError, Neighbour, Targets, browse, find};
use levada_session::Connection;
use tokio::time::timeout;

use super::resolve::texts;
use super::{Client, ClientError, Target};

/// How long only the known addresses are tried, before the network is browsed.
const HEAD_START: Duration = Duration::from_millis(600);
/// How long connecting to an announced address may take. It bounds the delay by a node that claims
/// the key falsely; a neighbour has a short round trip.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Connects to `target`. Also returns the target with the address that answered, and with the
    /// new key if the old one was rotated.
    ///
    /// # Errors
    /// As for [`Self::connection`], at the known addresses.
    pub(super) async fn reach(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, Target), ClientError> {
        let known = self.connection(target, framing);
        let announced = self.connect_announced(target, framing);
        tokio::pin!(known, announced);
        let at_known = |connection| found_at(connection, &target.addresses);
        let tried = match timeout(HEAD_START, &mut known).await {
            Ok(tried) => tried,
            Err(_) => tokio::select! {
                tried = &mut known => tried,
                found = &mut announced => match found {
                    Some(found) => return Ok(found),
                    None => return known.await.map(at_known),
                },
            },
        };
        match tried {
            Err(error) if error.may_have_moved() => announced.await.ok_or(error),
            tried => tried.map(at_known),
        }
    }

    /// Browses this network for the target's key, and connects where it is announced.
    async fn connect_announced(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Option<(Connection, Target)> {
        let identity = target.identity;
        let neighbour = logged(find(&identity).await)?;
        if let Some(found) = self.connect_neighbour(target, &neighbour, framing).await {
            return Some(found);
        }
        // The first announcement was wrong or stale: browse for the full time, and try all
        // addresses announced for this key.
        let targets = Targets { keys: BTreeSet::from([identity]), ..Targets::default() };
        let neighbour = logged(browse(targets).await.map(|seen| seen.merged(&identity)))?;
        self.connect_neighbour(target, &neighbour, framing).await
    }

    /// Connects to the target at the neighbour's addresses, without those that are already known.
    async fn connect_neighbour(
        &self,
        target: &Target,
        neighbour: &Neighbour,
        framing: Framing,
    ) -> Option<(Connection, Target)> {
        let mut addresses = texts(neighbour);
        addresses.retain(|address| !target.addresses.contains(address));
        if addresses.is_empty() {
            return None;
        }
        let moved = Target { identity: target.identity, addresses };
        let found = self.new_connection(&moved, framing);
        let (connection, address) = timeout(HANDSHAKE_TIMEOUT, found).await.ok()?.ok()?;
        // Only this address is proven: another node may have announced the others for this key.
        Some(found_at(connection, &[address]))
    }
}

/// The neighbour that was found, if any. An error, such as a machine without multicast, is logged.
fn logged(found: Result<Option<Neighbour>, DiscoveryError>) -> Option<Neighbour> {
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot browse the network for a node that does not answer");
        None
    })
}

/// The connection and its target, whose identity is the proven key: a successor of the requested
/// one, perhaps.
fn found_at(connection: Connection, addresses: &[String]) -> (Connection, Target) {
    let target = Target { identity: connection.peer(), addresses: addresses.to_vec() };
    (connection, target)
}
