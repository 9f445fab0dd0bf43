//! Nodes that have moved. Where a node was known is tried first; where its key is announced, next. Whoever
//! answers must prove the key, so it does not matter who announced it.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::Framing;
use levada_discovery::{DiscoveryError, Neighbour, Targets, browse, find};
use levada_session::Connection;
use tokio::time::timeout;

use super::resolve::texts;
use super::{Client, ClientError, Target};

/// What the known addresses have before the network is asked.
const HEAD_START: Duration = Duration::from_millis(600);
/// How long a node that was found may take. Whoever only claims the key must not keep us waiting, and a
/// neighbour is near.
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Client {
    /// A connection to `target`, and the target as it was found: elsewhere, perhaps, or with a new key that
    /// the old one signed.
    ///
    /// # Errors
    /// As for [`Self::connection`], of the known addresses.
    pub(super) async fn reach(
        &self,
        target: &Target,
        framing: Framing,
    ) -> Result<(Connection, Target), ClientError> {
        let known = self.connection(target, framing);
        let elsewhere = self.elsewhere(target, framing);
        tokio::pin!(known, elsewhere);
        let there = |connection| found_at(connection, &target.addresses);
        let tried = match timeout(HEAD_START, &mut known).await {
            Ok(tried) => tried,
            Err(_) => tokio::select! {
                tried = &mut known => tried,
                found = &mut elsewhere => match found {
                    Some(found) => return Ok(found),
                    None => return known.await.map(there),
                },
            },
        };
        match tried {
            Err(error) if error.may_have_moved() => elsewhere.await.ok_or(error),
            tried => tried.map(there),
        }
    }

    /// Looks for the target's key on this network, and connects where that is announced.
    async fn elsewhere(&self, target: &Target, framing: Framing) -> Option<(Connection, Target)> {
        let identity = target.identity;
        let neighbour = heard(find(&identity).await)?;
        if let Some(found) = self.announced_at(target, &neighbour, framing).await {
            return Some(found);
        }
        // Those who were heard first do not have the key: now all have their say.
        let targets = Targets { keys: BTreeSet::from([identity]), ..Targets::default() };
        let neighbour = heard(browse(targets).await.map(|seen| seen.merged(&identity)))?;
        self.announced_at(target, &neighbour, framing).await
    }

    /// Connects to the target where it is announced, but for what is known already.
    async fn announced_at(
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
        let (connection, address) = timeout(HANDSHAKE, found).await.ok()?.ok()?;
        // Only that one is proven: the others may be what another node announces for this key.
        Some(found_at(connection, &[address]))
    }
}

/// Whoever was heard. A machine without multicast hears nobody.
fn heard(found: Result<Option<Neighbour>, DiscoveryError>) -> Option<Neighbour> {
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "a node that does not answer cannot be looked for");
        None
    })
}

/// What was reached: the key that was proven may follow the one that was asked for.
fn found_at(connection: Connection, addresses: &[String]) -> (Connection, Target) {
    let target = Target { identity: connection.peer(), addresses: addresses.to_vec() };
    (connection, target)
}
