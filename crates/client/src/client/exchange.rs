//! Exchanges a ticket for a capability of this identity.

use levada_capability::{Capability, SWARM, Ticket};
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Params};

use super::operations::{call, unexpected};
use super::{Client, ClientError, Target};

/// The first version of the protocol that has the operation.
const SINCE: u32 = 4;

impl Client {
    /// Exchanges `ticket` at its node for a capability of this identity, on a dedicated connection.
    /// An identity that exchanges a ticket again receives the same capability.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the ticket is unknown, expired, used up, revoked, or for another
    /// identity.
    pub async fn exchange(&self, ticket: &Ticket) -> Result<Capability, ClientError> {
        let target = Target::from(ticket);
        let connection = self.dedicated_connection(&target, Framing::Auto).await?;
        let exchange = wire::Exchange { secret: ticket.secret().to_vec() };
        let answer = call(&connection, Operation::Exchange(exchange)).await;
        // Known only now: the node's HELLO comes before its answer.
        let denied = matches!(answer, Err(ClientError::Denied(_)));
        let is_older = denied && connection.version() < SINCE;
        connection.close(0, "");
        if is_older {
            let text = "the node speaks an older version, which has no tickets";
            return Err(ClientError::Local(text.into()));
        }
        let Answer::Granted(granted) = answer? else { return Err(unexpected()) };
        self.admitted(granted, target, &ticket.terms().root)
    }

    /// The capability for the share with this root that the node `target` has granted to this
    /// identity.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] if it is for another node, identity or root.
    pub fn admitted(
        &self,
        granted: wire::Granted,
        target: Target,
        root: &[u8; 32],
    ) -> Result<Capability, ClientError> {
        let capability = Capability::from_granted(granted, SWARM.to_owned(), target.addresses)?;
        let own = capability.node() == target.identity && capability.holder() == self.identity();
        if !own || capability.params().value(Params::ROOT) != Some(root.as_slice()) {
            return Err(ClientError::Protocol(
                "the node answered with a capability for another node, identity or share".into(),
            ));
        }
        Ok(capability)
    }
}

impl From<&Ticket> for Target {
    fn from(ticket: &Ticket) -> Self {
        Self { identity: ticket.node(), addresses: ticket.addresses().to_vec() }
    }
}
