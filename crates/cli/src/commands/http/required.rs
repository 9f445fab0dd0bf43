//! The middleboxes that a service requires, if the command line names none.

use levada_client::Target;
use levada_core::Identity;
use levada_core::wire::{Middlebox, Service};
use levada_services::http::{Allowance, Strategy};

use super::via::Via;
use crate::failure::{Failure, PROTOCOL};
use crate::output::plain;

/// A middlebox that a service requires.
pub struct Required {
    identity: Identity,
    /// Empty if the node does not say.
    address: String,
    allowance: Allowance,
}

/// The middleboxes that `service` lists, of what the node has answered.
pub fn listed(services: &[Service], service: &str) -> Vec<Middlebox> {
    let of_service = services.iter().filter(|one| one.name == service);
    of_service.flat_map(|one| one.middleboxes.clone()).collect()
}

/// Those that are required.
pub fn middleboxes(listed: &[Middlebox]) -> Result<Vec<Required>, Failure> {
    listed.iter().filter(|one| one.required).map(required).collect()
}

fn required(one: &Middlebox) -> Result<Required, Failure> {
    let malformed = |text: String| Failure::new(PROTOCOL, text);
    let identity = Identity::try_from(one.identity.as_slice())
        .map_err(|error| malformed(format!("the node names a malformed identity: {error}")))?;
    let allowance = Allowance::new(&one.allow).map_err(|error| {
        let error = plain(&error.to_string());
        malformed(format!("the node allows {identity} what this version cannot grant: {error}"))
    })?;
    Ok(Required { identity, address: one.address.clone(), allowance })
}

/// The address at which a listed middlebox listens, if the node says it.
pub fn address_of(listed: &[Middlebox], identity: &Identity) -> Option<String> {
    let mut found = listed.iter().filter(|one| one.identity == identity.as_bytes());
    let address = &found.next()?.address;
    (!address.is_empty()).then(|| address.clone())
}

/// Fails if `service` does not list one of `hops`: the node would end the session before it has
/// proved its identity, without a reason.
pub fn check_listed(listed: &[Middlebox], service: &str, hops: &[Target]) -> Result<(), Failure> {
    let listed: Vec<&[u8]> = listed.iter().map(|one| one.identity.as_slice()).collect();
    let unlisted = hops.iter().find(|hop| !listed.contains(&hop.identity.as_bytes().as_slice()));
    match unlisted {
        None => Ok(()),
        Some(hop) => Err(Failure::denied(format!(
            "sessions of `{}` may not lead through the middlebox {}; `levada query` shows through which they may",
            plain(service),
            hop.identity
        ))),
    }
}

/// The path through `required`, if the user accepts it.
pub fn accept(
    required: &[Required],
    strategy: Strategy,
    accepted: bool,
) -> Result<Vec<Via>, Failure> {
    if !required.is_empty() && !accepted {
        let list: Vec<String> = required.iter().map(|one| describe(one, strategy)).collect();
        return Err(Failure::denied(format!(
            "this service requires middleboxes: {}; --accept-via accepts them with these rights",
            list.join("; ")
        )));
    }
    let via = |one: &Required| {
        if one.address.is_empty() {
            return Err(Failure::denied(format!(
                "the node does not say where the middlebox {} listens; name it with --via",
                one.identity
            )));
        }
        let node = format!("{}@{}", one.identity, one.address);
        Ok(Via { node, grants: one.allowance.grants(strategy) })
    };
    required.iter().map(via).collect()
}

fn describe(one: &Required, strategy: Strategy) -> String {
    let at = if one.address.is_empty() { String::new() } else { format!("@{}", one.address) };
    let grants = one.allowance.grants(strategy);
    let grants = if grants.is_empty() { "nothing".to_owned() } else { grants };
    plain(&format!("{}{at} may see {grants}", one.identity))
}
