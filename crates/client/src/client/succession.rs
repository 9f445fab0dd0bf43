//! Rotated keys: telling nodes about ours, and following theirs.

use std::sync::Arc;

use levada_channel::ClientConfig;
use levada_core::wire::{self, answer, operation::Operation};
use levada_core::{Framing, Identity, SecretKey, Succession, SystemRandom};
use levada_session::Connection;

use super::dial::dial;
use super::operations::{ask, unexpected};
use super::{Client, ClientError, Target};

/// Rotations that are followed in one go.
const MAX_CHAIN: usize = 16;

impl Client {
    /// Connects to a node and tells it which old keys of ours this key follows; why it has not taken over one of
    /// them, if so.
    ///
    /// # Errors
    /// As for [`Self::connection`].
    pub async fn tell_successions(&self, target: &Target) -> Result<Vec<String>, ClientError> {
        let connection = self.dial_or_follow(target, Framing::Auto).await?.0;
        let refused = self.announce_successions(&connection).await;
        connection.close(0, "");
        refused
    }

    /// Tells a node which old keys of ours this key follows, once; gives its refusals. They may be for the moment only:
    /// the node is told again the next time.
    pub(super) async fn announce_successions(
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
            match ask(connection, operation).await {
                Ok(_) => {}
                // The node has never seen the old key. It must hear of the new one again as long as the old one
                // could still prove a right there.
                Err(ClientError::No(text)) if self.still_holds(&node, &succession)? => {
                    tracing::debug!(%node, %text, "the node did not note our new key");
                    let text = format!(
                        "{text}; revoke there the capabilities that it held and never used"
                    );
                    refused.push(text);
                    continue;
                }
                Err(ClientError::No(_)) => {}
                Err(ClientError::Denied(text)) => {
                    tracing::debug!(%node, %text, "the node did not follow our new key");
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

    /// The sessions at this node that this identity has requested for others and that have not ended, and whether
    /// there are more of them.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the node speaks a version without this question.
    pub async fn requested_for_others(
        &self,
        target: &Target,
    ) -> Result<(Vec<wire::RequestedSession>, bool), ClientError> {
        let connection = self.connection(target, Framing::Auto).await?;
        match ask(&connection, Operation::Requested(wire::Requested {})).await? {
            answer::Answer::Requested(requested) => Ok((requested.sessions, requested.more)),
            _ => Err(unexpected()),
        }
    }

    /// The statements that lead to our present key, oldest first.
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

    /// Asks whoever answers at `target` for the proof that the key `presented` follows the pinned
    /// one, under an identity made for this question only. `None`: the key is not pinned, or there is no proof.
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
        // Whatever fails from here on: the key that answered is not the one that was expected.
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
        tracing::warn!(old = %target.identity, new = %presented, "the node's key was rotated; its proof holds");
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
        let answer = ask(connection, Operation::Successor(question)).await;
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
