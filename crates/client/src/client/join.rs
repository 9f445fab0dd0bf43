//! Joins a node with its invitation, and pins the node.

use levada_capability::Invitation;
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Identity, check_name};

use super::operations::{call, check_service_name, unexpected};
use super::resolve::merged;
use super::{Client, ClientError, Joined, Target};

impl Client {
    /// Joins the node of the invitation, and pins it under `name`, or else under the name that the node has chosen.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the invitation is used, expired or unknown, or the name is pinned to another key.
    pub async fn join(
        &self,
        invitation: &Invitation,
        name: Option<&str>,
    ) -> Result<Joined, ClientError> {
        let target = Target::from(invitation);
        let (connection, address) = self.new_connection(&target, Framing::Auto).await?;
        if let Some(name) = name {
            self.check_name_is_free(name, invitation.node())?;
        }
        let join = wire::Join { secret: invitation.secret().to_vec() };
        let Answer::Joined(joined) = call(&connection, Operation::Join(join)).await? else {
            return Err(unexpected());
        };
        joined.services.iter().try_for_each(|service| check_service_name(service))?;
        let name = self.pin_as(name, &joined.name, invitation, &address)?;
        Ok(Joined { name, identity: invitation.node(), services: joined.services })
    }

    fn check_name_is_free(&self, name: &str, node: Identity) -> Result<(), ClientError> {
        match self.known.by_name(name).map_err(ClientError::local)? {
            Some(pin) if pin.identity != node => Err(ClientError::Denied(format!(
                "`{name}` is already the name of {} here; choose another with --as",
                pin.identity
            ))),
            _ => Ok(()),
        }
    }

    /// Pins the node under `requested`, which is free; otherwise under the name that the node has chosen, if that is
    /// valid and free; otherwise under a name derived from its key.
    fn pin_as(
        &self,
        requested: Option<&str>,
        own: &str,
        invitation: &Invitation,
        proven: &str,
    ) -> Result<String, ClientError> {
        let (node, known) = (invitation.node(), &self.known);
        let addresses = merged(&[proven.to_owned()], invitation.addresses());
        let pinned = known.by_identity(&node).map_err(ClientError::local)?;
        let usable = |name: &str| {
            check_name(name).is_ok()
                && name.parse::<Identity>().is_err()
                && self.check_name_is_free(name, node).is_ok()
        };
        let own = if usable(own) { own.to_owned() } else { format!("node-{}", &node.short()[2..]) };
        let name = match (requested, pinned) {
            (Some(requested), Some(pin)) if pin.name != requested => {
                known.rename(&pin.name, requested).map_err(ClientError::local)?;
                requested.to_owned()
            }
            (_, Some(pin)) => pin.name,
            (requested, None) => {
                let name = requested.map_or(own, str::to_owned);
                known.pin(&name, &node, &addresses, self.now()).map_err(ClientError::local)?;
                name
            }
        };
        known.update_addresses(&name, &addresses).map_err(ClientError::local)?;
        Ok(name)
    }
}
