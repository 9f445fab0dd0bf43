//! Joins a node with its invitation, and pins the node.

use levada_capability::Invitation;
use levada_core::printable::one_line;
use levada_core::wire::{self, answer::Answer, operation::Operation};
use levada_core::{Framing, Identity, MAX_NAME, UnixTime, check_name};

use super::operations::{call, check_service_name, unexpected};
use super::resolve::merged;
use super::{Client, ClientError, Joined, Target};
use levada_home::known::Known;

impl Client {
    /// Joins the node of the invitation, and pins it under `name`, or else under the name that the
    /// node has chosen.
    ///
    /// # Errors
    /// [`ClientError::Denied`] if the invitation is used, expired or unknown, or the name is pinned
    /// to another key.
    pub async fn join(
        &self,
        invitation: &Invitation,
        name: Option<&str>,
    ) -> Result<Joined, ClientError> {
        let target = Target::from(invitation);
        let (connection, address) = self.new_connection(&target, Framing::Auto).await?;
        let node = invitation.node();
        if let Some(name) = name.map(str::to_owned) {
            self.with_known(move |known| check_name_is_free(known, &name, node)).await?;
        }
        let join = wire::Join { secret: invitation.secret().to_vec() };
        let Answer::Joined(joined) = call(&connection, Operation::Join(join)).await? else {
            return Err(unexpected());
        };
        joined.services.iter().try_for_each(|service| check_service_name(service))?;
        let addresses = merged(&[address], invitation.addresses());
        let target = Target { identity: node, addresses };
        let now = self.now();
        let requested = name.map(str::to_owned);
        let own = joined.name;
        let own_name = one_line(&own, MAX_NAME);
        let pinned = self.with_known(move |known| pin_as(known, requested, &own, &target, now));
        let (name, renamed_from) = pinned.await?;
        let services = joined.services;
        Ok(Joined { name, identity: node, own_name, renamed_from, services })
    }
}

fn check_name_is_free(known: &Known, name: &str, node: Identity) -> Result<(), ClientError> {
    match known.by_name(name)? {
        Some(pin) if pin.identity != node => Err(ClientError::Denied(format!(
            "`{name}` is already the name of {} here; choose another with --as",
            pin.identity
        ))),
        _ => Ok(()),
    }
}

/// Pins the node under `requested`, which is free; otherwise under its `own` name, which it has
/// chosen, if that is valid and free; otherwise under a name derived from its key. Returns the
/// name, and the earlier one if this changed it.
fn pin_as(
    known: &Known,
    requested: Option<String>,
    own: &str,
    node: &Target,
    now: UnixTime,
) -> Result<(String, Option<String>), ClientError> {
    let Target { identity, addresses } = node;
    let usable = |name: &str| {
        check_name(name).is_ok()
            && name.parse::<Identity>().is_err()
            && check_name_is_free(known, name, *identity).is_ok()
    };
    let mut renamed_from = None;
    let name = match (requested, known.by_identity(identity)?) {
        (Some(requested), Some(pin)) if pin.name != requested => {
            known.rename(&pin.name, &requested)?;
            renamed_from = Some(pin.name);
            requested
        }
        (_, Some(pin)) => pin.name,
        (requested, None) => {
            let own = || match usable(own) {
                true => own.to_owned(),
                false => format!("node-{}", &identity.short()[2..]),
            };
            let name = requested.unwrap_or_else(own);
            known.pin(&name, identity, addresses, now)?;
            name
        }
    };
    known.update_addresses(&name, addresses)?;
    Ok((name, renamed_from))
}
