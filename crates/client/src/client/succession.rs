//! Key rotations: announces those of this home to nodes, and follows those of nodes.

use std::sync::Arc;

use levada_channel::ClientConfig;
use levada_core::wire::{self, answer, operation::Operation};
use levada_core::{Framing, Identity, SecretKey, Succession, SystemRandom};
use levada_database::DatabaseError as StoreError;
use levada_session::Connection;

use super::dial::dial;
use super::operations::{call, unexpected};
use super::{Client, ClientError, Target};
use levada_home::known::MAX_CHAIN;

impl Client {
    /// Connects to a node and announces the old keys of this home that the present key succeeds.
    /// Returns the texts of its refusals.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub async fn announce_successions(&self, target: &Target) -> Result<Vec<String>, ClientError> {
        let connection = self.dial_or_follow(target, Framing::Auto).await?.0;
        let own = self.identity();
        let node = connection.peer();
        let refused = match self.with_known(move |known| known.unacknowledged(own, &node)).await {
            Ok(successions) => self.announce(&connection, successions).await,
            Err(error) => Err(error),
        };
        connection.close(0, "");
        refused
    }

    /// Announces rotations of this home to the node; returns its refusals. A refused one is
    /// announced again on the next connection, because the refusal may be temporary.
    pub(super) async fn announce(
        &self,
        connection: &Connection,
        successions: Vec<Succession>,
    ) -> Result<Vec<String>, ClientError> {
        let node = connection.peer();
        let mut refused = Vec::new();
        for succession in successions {
            let operation = Operation::Succession(succession.to_wire());
            let unknown = match call(connection, operation).await {
                Ok(_) => None,
                Err(ClientError::No(text)) => Some(text),
                Err(ClientError::Denied(text)) => {
                    tracing::debug!(%node, %text, "the node did not follow the rotation of this home");
                    refused.push(text);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let stored = self.acknowledge(node, &succession, unknown.is_some()).await?;
            if let Some(text) = unknown.filter(|_| !stored) {
                tracing::debug!(%node, %text, "the node did not store the new key of this home");
                refused.push(format!(
                    "{text}; revoke the capabilities of the old key that it never used at this node"
                ));
            }
        }
        Ok(refused)
    }

    /// Stores that the node has acknowledged a rotation of this home. A node to which the old key
    /// is `unknown` has not acknowledged it while a capability of the old key is valid there: then
    /// nothing is stored, so that the rotation is announced again, and the result is `false`.
    async fn acknowledge(
        &self,
        node: Identity,
        succession: &Succession,
        unknown: bool,
    ) -> Result<bool, ClientError> {
        let old = succession.old();
        let new = succession.new_identity();
        let now = self.now();
        self.with_known(move |known| {
            if unknown && known.holds_at(&node, &old, now)? {
                return Ok(false);
            }
            known.acknowledge(&node, &new)?;
            Ok::<_, StoreError>(true)
        })
        .await
    }

    /// The sessions at this node that this identity has requested for other holders and that have
    /// not ended; `true` if the node has more than it returned.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the node speaks a version without this operation.
    pub async fn requested_for_others(
        &self,
        target: &Target,
    ) -> Result<(Vec<wire::RequestedSession>, bool), ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        match call(&connection, Operation::Requested(wire::Requested {})).await? {
            answer::Answer::Requested(requested) => Ok((requested.sessions, requested.more)),
            _ => Err(unexpected()),
        }
    }

    /// Asks the node at `target` for the proof that the key `presented` succeeds the pinned one.
    /// The question uses a throwaway identity, because the node is not authenticated yet. `None` if
    /// the key is not pinned or there is no proof.
    pub(super) async fn follow(
        &self,
        target: &Target,
        presented: Identity,
    ) -> Result<Option<Target>, ClientError> {
        let old = target.identity;
        if self.with_known(move |known| known.by_identity(&old)).await?.is_none() {
            return Ok(None);
        }
        let throwaway = SecretKey::generate(&SystemRandom).map_err(ClientError::local)?;
        let tls = Arc::new(ClientConfig::new(&throwaway).map_err(ClientError::local)?);
        // Any failure from here on means that the presented key is not proven.
        let dialled = dial(&tls, target, Some(presented), Framing::Auto).await;
        let Ok((connection, _)) = dialled else { return Ok(None) };
        let chain = successors(&connection, old, presented).await;
        connection.close(0, "");
        let Some(chain) = chain else { return Ok(None) };
        let followed = self.with_known(move |known| {
            chain.iter().try_for_each(|succession| known.follow(succession).map(drop))
        });
        if followed.await.is_err() {
            return Ok(None);
        }
        tracing::warn!(%old, new = %presented, "the node's key was rotated; its proof is valid");
        Ok(Some(Target { identity: presented, addresses: target.addresses.clone() }))
    }
}

/// The statements that lead from `old` to `presented`, each signed by the key before it.
async fn successors(
    connection: &Connection,
    old: Identity,
    presented: Identity,
) -> Option<Vec<Succession>> {
    let mut chain = Vec::new();
    let mut current = old;
    while current != presented && chain.len() < MAX_CHAIN {
        let question = wire::Successor { old: current.as_bytes().to_vec() };
        let answer = call(connection, Operation::Successor(question)).await;
        let Ok(answer::Answer::Succession(message)) = answer else { return None };
        let succession = Succession::from_wire(&message).ok()?;
        if succession.old() != current {
            return None;
        }
        current = succession.new_identity();
        chain.push(succession);
    }
    (current == presented).then_some(chain)
}
