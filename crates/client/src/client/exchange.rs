//! Exchanges a ticket for a capability of this identity.

use levada_capability::{Capability, SWARM, Ticket};
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Params};

use super::operations::{call, unexpected};
use super::{Client, ClientError, Target};

/// The first version of the protocol that has the operation.
const SINCE: u32 = 4;

impl Client {
    /// Exchanges `ticket` at its node for a capability of this identity, on a dedicated connection. An identity that exchanges a
    /// ticket again receives the same capability.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the ticket is unknown, expired, used up, revoked, or for another identity.
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
        let capability = Capability::from_granted(granted, SWARM.to_owned(), target.addresses)?;
        let own = capability.node() == ticket.node() && capability.holder() == self.identity();
        let root = capability.params().value(Params::ROOT);
        if !own || root != Some(ticket.terms().root.as_slice()) {
            return Err(ClientError::Protocol(
                "the node answered with a capability that differs from the ticket".into(),
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
