//! Key rotations: announces those of this home to nodes, and follows those of nodes.

use std::sync::Arc;

use levada_channel::ClientConfig;
use levada_core::wire::{self, answer, operation::Operation};
use levada_core::{Framing, Identity, SecretKey, Succession, SystemRandom};
use levada_session::Connection;

use super::dial::dial;
use super::operations::{call, unexpected};
use super::{Client, ClientError, Target};

/// Maximum number of successive rotations that are followed.
const MAX_CHAIN: usize = 16;

impl Client {
    /// Connects to a node and announces the old keys of this home that the present key succeeds. Returns the texts of its
    /// refusals.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub async fn announce_successions(&self, target: &Target) -> Result<Vec<String>, ClientError> {
        let connection = self.dial_or_follow(target, Framing::Auto).await?.0;
        let refused = self.announce_successions_on(&connection).await;
        connection.close(0, "");
        refused
    }

    /// Announces those rotations of this home that the node has not acknowledged; returns its refusals. A refused one is
    /// announced again on the next connection, because the refusal may be temporary.
    pub(super) async fn announce_successions_on(
        &self,
        connection: &Connection,
    ) -> Result<Vec<String>, ClientError> {
        let (node, mut refused) = (connection.peer(), Vec::new());
        for succession in self.own_successions()? {
            let new = succession.new_identity();
            if self.known.acknowledged(&node, &new).map_err(ClientError::local)? {
                continue;
            }
            let operation = Operation::Succession(succession.to_wire());
            match call(connection, operation).await {
                Ok(_) => {}
                // The node has never seen the old key. The rotation must be announced again while a capability of the
                // old key is valid there.
                Err(ClientError::No(text)) if self.still_holds(&node, &succession)? => {
                    tracing::debug!(%node, %text, "the node did not store the new key of this home");
                    let text = format!(
                        "{text}; revoke the capabilities of the old key that it never used at this node"
                    );
                    refused.push(text);
                    continue;
                }
                Err(ClientError::No(_)) => {}
                Err(ClientError::Denied(text)) => {
                    tracing::debug!(%node, %text, "the node did not follow the rotation of this home");
                    refused.push(text);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.known.acknowledge(&node, &new).map_err(ClientError::local)?;
        }
        Ok(refused)
    }

    fn still_holds(&self, node: &Identity, succession: &Succession) -> Result<bool, ClientError> {
        self.known.holds_at(node, &succession.old(), self.now()).map_err(ClientError::local)
    }

    /// The sessions at this node that this identity has requested for other holders and that have not ended; `true` if
    /// the node has more than it returned.
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

    /// The statements from the first key of this home to its present one, oldest first.
    fn own_successions(&self) -> Result<Vec<Succession>, ClientError> {
        let all = self.known.successions().map_err(ClientError::local)?;
        let mut chain = Vec::new();
        let mut current = self.identity();
        while let Some(found) = all.iter().find(|one| one.new_identity() == current)
            && chain.len() < MAX_CHAIN
        {
            current = found.old();
            chain.push(found.clone());
        }
        chain.reverse();
        Ok(chain)
    }

    /// Asks the node at `target` for the proof that the key `presented` succeeds the pinned one. The question uses a
    /// throwaway identity, because the node is not authenticated yet. `None` if the key is not pinned or there is no proof.
    pub(super) async fn follow(
        &self,
        target: &Target,
        presented: Identity,
    ) -> Result<Option<Target>, ClientError> {
        let pinned = self.known.by_identity(&target.identity).map_err(ClientError::local)?;
        if pinned.is_none() {
            return Ok(None);
        }
        let throwaway = SecretKey::generate(&SystemRandom).map_err(ClientError::local)?;
        let tls = Arc::new(ClientConfig::new(&throwaway).map_err(ClientError::local)?);
        // Any failure from here on means that the presented key is not proven.
        let dialled = dial(&tls, target, Some(presented), Framing::Auto).await;
        let Ok((connection, _)) = dialled else { return Ok(None) };
        let chain = successors(&connection, target.identity, presented).await;
        connection.close(0, "");
        let Some(chain) = chain else { return Ok(None) };
        for succession in &chain {
            if self.known.follow(succession).is_err() {
                return Ok(None);
            }
        }
        tracing::warn!(old = %target.identity, new = %presented, "the node's key was rotated; its proof is valid");
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
