//! Reads the groups that another node signs.

use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Identity};

use super::operations::{call, unexpected};
use super::{Client, ClientError};

impl Client {
    /// Reads the signed set of groups with this name at the node `node`, at the addresses of its
    /// pin. The caller verifies it.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] if the node does not answer; [`ClientError::Denied`] if this
    /// identity may not read it, or there is none.
    pub async fn read_groups(&self, node: Identity, set: &str) -> Result<String, ClientError> {
        let target = self.pinned_or(node, &[]).await?;
        let (connection, _) = self.reach(&target, Framing::Auto).await?;
        let read = wire::ReadGroups { set: set.to_owned() };
        match call(&connection, Operation::ReadGroups(read)).await? {
            Answer::Groups(groups) => Ok(groups.text),
            _ => Err(unexpected()),
        }
    }
}
