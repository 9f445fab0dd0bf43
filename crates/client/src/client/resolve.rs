//! Resolves the argument NODE of a command to an identity and addresses.

use std::collections::BTreeSet;
use std::str::FromStr;

use levada_capability::{Capability, Invitation};
use levada_core::{Framing, Identity, check_name, closest};
use levada_discovery::{Neighbour, Targets, browse};

use super::{Client, ClientError};
use levada_home::address;
use levada_home::known::{Known, MOST_ADDRESSES, Pin, PinError};

/// A node to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The key that it must prove.
    pub identity: Identity,
    /// Its possible addresses, in the form of [`levada_home::address`]: hints only.
    pub addresses: Vec<String>,
}

impl Target {
    /// A node at an address that the user typed, with or without a port. It is dialled even if it
    /// is of loopback.
    pub fn typed(identity: Identity, address: &str) -> Self {
        Self { identity, addresses: address::typed(&with_port(address)) }
    }
}

/// A node that announces a name which is not pinned here. Nothing in it is authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpinnedNode {
    /// The name that it announces.
    pub name: String,
    /// The key that it announces.
    pub identity: Identity,
    /// The addresses that it announces.
    pub addresses: Vec<String>,
}

/// Whether an unpinned node is to be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pin its key under its name.
    Accept,
    /// The user saw the key and refused it.
    Refuse,
    /// The user could not be asked.
    Unasked,
}

/// The default TCP port of a node.
pub const DEFAULT_PORT: u16 = 5382;

/// Maximum number of keys in an error message.
const MAX_SHOWN: usize = 4;
/// The maximum number of pinned names that an error lists.
const MAX_LISTED: usize = 8;

impl Client {
    /// Resolves NODE: a nickname pinned here, IDENTITY, or `IDENTITY@host:port`, which needs no pin
    /// and no lookup. For any other name, this network is browsed for a node that announces it;
    /// `confirm` decides whether the name is pinned to that node's key, and it is pinned after the
    /// node has proven the key.
    ///
    /// A nickname or IDENTITY that does not answer at its known addresses is browsed for by its
    /// key, and its pin is updated.
    ///
    /// # Errors
    /// [`ClientError::Denied`] for a name that is not confirmed, or that several keys claim;
    /// [`ClientError::NoAnswer`] if the node does not answer; [`ClientError::Usage`] for a
    /// malformed NODE, or a name that is neither pinned nor announced.
    pub async fn resolve(
        &self,
        node: &str,
        confirm: impl FnOnce(&UnpinnedNode) -> Verdict,
    ) -> Result<Target, ClientError> {
        if let Some((identity, address)) = node.split_once('@') {
            return explicit_target(node, identity, address);
        }
        match self.known_target(node).await? {
            Some(target) => Ok(self.reach(&target, Framing::Auto).await?.1),
            None => self.pin_announced(node, confirm).await,
        }
    }

    /// As [`Self::resolve`], for callers that have another node to ask: this network is not browsed
    /// for a node that does not answer at its known addresses, if it has any.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn resolve_at_known(
        &self,
        node: &str,
        confirm: impl FnOnce(&UnpinnedNode) -> Verdict,
    ) -> Result<Target, ClientError> {
        if let Some(target) = self.target_with_addresses(node).await? {
            let connection = self.connection(&target, Framing::Auto).await?;
            // The successor, if the key was rotated.
            return Ok(Target { identity: connection.peer(), ..target });
        }
        self.resolve(node, confirm).await
    }

    /// As [`Self::resolve`], for callers that only need the identity: a node with known addresses
    /// is not contacted.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn identify(
        &self,
        node: &str,
        confirm: impl FnOnce(&UnpinnedNode) -> Verdict,
    ) -> Result<Target, ClientError> {
        match self.target_with_addresses(node).await? {
            Some(target) => Ok(target),
            None => self.resolve(node, confirm).await,
        }
    }

    /// As [`Self::known_target`], if the pins have addresses of it; `None` for IDENTITY@ADDRESS,
    /// too.
    async fn target_with_addresses(&self, node: &str) -> Result<Option<Target>, ClientError> {
        if node.contains('@') {
            return Ok(None);
        }
        let target = self.known_target(node).await?;
        Ok(target.filter(|target| !target.addresses.is_empty()))
    }

    /// The target of NODE by the pins alone; `None` for a name that is not pinned.
    async fn known_target(&self, node: &str) -> Result<Option<Target>, ClientError> {
        // An identity takes precedence over a nickname of the same text.
        if let Ok(identity) = node.parse::<Identity>() {
            let addresses = self.pinned_addresses(identity).await?;
            return Ok(Some(Target { identity, addresses }));
        }
        let name = node.to_owned();
        let pin = self.with_known(move |known| known.by_name(&name)).await?;
        Ok(pin.as_ref().map(Target::from))
    }

    /// Pins a name on its first use.
    async fn pin_announced(
        &self,
        name: &str,
        confirm: impl FnOnce(&UnpinnedNode) -> Verdict,
    ) -> Result<Target, ClientError> {
        let usage = "a NODE is a nickname, the name of a node on this network, IDENTITY, or IDENTITY@host:port";
        check_name(name)
            .map_err(|_| ClientError::Usage(format!("`{name}` is not a NODE: {usage}")))?;
        let node = self.announced_as(name).await?;
        match confirm(&node) {
            Verdict::Accept => {}
            Verdict::Refuse => {
                let text = format!("{} was not accepted as `{name}`", node.identity);
                return Err(ClientError::Denied(text));
            }
            Verdict::Unasked => return Err(ClientError::Denied(unasked(&node))),
        }
        let UnpinnedNode { identity, addresses, .. } = node;
        let mut target = Target { identity, addresses };
        // The name is pinned only after the node has proven the key: a false announcement must not
        // occupy the name.
        let (_, address) = self.new_connection(&target, Framing::Auto).await?;
        // The proven address comes first: another node may have announced the others.
        target.addresses = merged(&[address], &target.addresses);
        let name = name.to_owned();
        let now = self.now();
        self.with_known(move |known| {
            known.pin(&name, &target.identity, &target.addresses, now)?;
            Ok::<_, PinError>(target)
        })
        .await
    }

    /// The only node that announces this name; its key is not pinned under another.
    async fn announced_as(&self, name: &str) -> Result<UnpinnedNode, ClientError> {
        let targets = Targets { names: BTreeSet::from([name.to_owned()]), ..Targets::default() };
        let mut seen = browse(targets).await.map_err(|error| {
            ClientError::Usage(unknown(name, &format!("cannot be browsed for: {error}")))
        })?;
        seen.neighbours.retain(|neighbour| neighbour.name == name);
        let neighbour = match <[Neighbour; 1]>::try_from(seen.neighbours) {
            Ok([neighbour]) => neighbour,
            Err(none) if none.is_empty() => {
                let names = self.with_known(Known::names).await?;
                let names: Vec<&str> = names.iter().map(|pin| pin.name.as_str()).collect();
                let text = unknown(name, "is not announced on this network");
                return Err(ClientError::Usage(meant(name, &names, text)));
            }
            Err(several) => return Err(ClientError::Denied(conflict(name, &several))),
        };
        let identity = neighbour.identity;
        if let Some(pin) = self.with_known(move |known| known.by_identity(&identity)).await? {
            return Err(ClientError::Denied(format!(
                "`{name}` is announced by {}, which is pinned here as `{}`: use that name",
                pin.identity, pin.name
            )));
        }
        let addresses = texts(&neighbour);
        Ok(UnpinnedNode { name: neighbour.name, identity, addresses })
    }

    /// The target of a capability: its node, at the addresses that are pinned for that key, and
    /// then at those of the capability.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read.
    pub async fn target_of(&self, capability: &Capability) -> Result<Target, ClientError> {
        let pinned = self.pinned_addresses(capability.node()).await?;
        Ok(target_at(capability, pinned))
    }

    /// The target for a request on behalf of another identity: the node at its pinned addresses,
    /// and at `hints` only if none is pinned. Another identity can thus not redirect connections to
    /// a pinned node.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read.
    pub async fn pinned_or(
        &self,
        identity: Identity,
        hints: &[String],
    ) -> Result<Target, ClientError> {
        let pinned = self.pinned_addresses(identity).await?;
        let addresses = if pinned.is_empty() { hints.to_vec() } else { pinned };
        Ok(Target { identity, addresses })
    }

    /// The addresses in the pin of `identity`; empty if it is not pinned.
    async fn pinned_addresses(&self, identity: Identity) -> Result<Vec<String>, ClientError> {
        let pin = self.with_known(move |known| known.by_identity(&identity)).await?;
        Ok(pin.map(|pin| pin.addresses).unwrap_or_default())
    }
}

/// The target of a capability whose node has the addresses `pinned` in its pin.
pub(super) fn target_at(capability: &Capability, pinned: Vec<String>) -> Target {
    let mut addresses = pinned;
    for hint in capability.addresses() {
        if !addresses.contains(hint) {
            addresses.push(hint.clone());
        }
    }
    Target { identity: capability.node(), addresses }
}

/// The target of `IDENTITY@host:port`.
fn explicit_target(node: &str, identity: &str, address: &str) -> Result<Target, ClientError> {
    let identity: Identity = identity.parse().map_err(ClientError::usage)?;
    if address.is_empty() {
        return Err(ClientError::Usage(format!("`{node}` has no address after the @")));
    }
    Ok(Target::typed(identity, address))
}

/// The error for an unknown name, with the pinned name that it may have meant, or all of a few.
fn meant(name: &str, pinned: &[&str], text: String) -> String {
    match closest(name, pinned.iter().copied()) {
        Some(similar) => format!("{text}. Did you mean `{similar}`?"),
        None if (1..=MAX_LISTED).contains(&pinned.len()) => {
            format!("{text}. Pinned here: {}", pinned.join(", "))
        }
        None => text,
    }
}

fn unknown(name: &str, why: &str) -> String {
    format!(
        "no node is pinned here as `{name}`, and that name {why}: join the node with its invitation, \
         or use IDENTITY@host:port"
    )
}

fn unasked(node: &UnpinnedNode) -> String {
    let UnpinnedNode { name, identity, addresses } = node;
    let address = addresses.first().map(|text| address::shown(text)).unwrap_or_default();
    format!(
        "`{name}` is new here, and there is no terminal to confirm its key: a node that claims the key {identity} \
         announces that name. Compare the key with `levada id` on that node; then repeat with --accept-new, \
         or use {identity}@{address}"
    )
}

fn conflict(name: &str, several: &[Neighbour]) -> String {
    let mut claims: Vec<String> = several.iter().take(MAX_SHOWN).map(claim).collect();
    if several.len() > MAX_SHOWN {
        claims.push(format!("{} more", several.len() - MAX_SHOWN));
    }
    let claims = claims.join(", ");
    format!(
        "`{name}` is announced under {} different keys: {claims}. Use IDENTITY@host:port of the right one",
        several.len()
    )
}

fn claim(neighbour: &Neighbour) -> String {
    let address = neighbour.addresses.first().map(ToString::to_string).unwrap_or_default();
    format!("{} at {address}", neighbour.identity)
}

/// The addresses of a neighbour, in the form of pins.
pub(super) fn texts(neighbour: &Neighbour) -> Vec<String> {
    neighbour.addresses.iter().take(MOST_ADDRESSES).map(address::of_socket).collect()
}

/// The addresses in the order of attempts: without duplicates and those that only another machine
/// can use, at most [`MOST_ADDRESSES`].
pub(super) fn merged(first: &[String], then: &[String]) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for address in first.iter().chain(then) {
        let is_new = !addresses.contains(address) && address::is_usable(address);
        if addresses.len() < MOST_ADDRESSES && is_new {
            addresses.push(address.clone());
        }
    }
    addresses
}

impl FromStr for Target {
    type Err = ClientError;

    /// Reads `IDENTITY`, or `IDENTITY@host:port`.
    fn from_str(text: &str) -> Result<Self, ClientError> {
        match text.split_once('@') {
            Some((identity, address)) => explicit_target(text, identity, address),
            None => {
                let identity = text.parse().map_err(ClientError::usage)?;
                Ok(Self { identity, addresses: Vec::new() })
            }
        }
    }
}

impl From<&Invitation> for Target {
    fn from(invitation: &Invitation) -> Self {
        Self { identity: invitation.node(), addresses: invitation.addresses().to_vec() }
    }
}

impl From<&Pin> for Target {
    fn from(pin: &Pin) -> Self {
        Self { identity: pin.identity, addresses: pin.addresses.clone() }
    }
}

/// Adds the default port to a bare host, IPv6 in brackets or not.
fn with_port(address: &str) -> String {
    // A pasted address may have the tag of a machine.
    let address = address.split_once('@').map_or(address, |(host_port, _)| host_port);
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    match address.rsplit_once(':') {
        _ if bare_v6 => format!("[{address}]:{DEFAULT_PORT}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => address.to_owned(),
        _ => format!("{address}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_default_port_to_a_bare_host() {
        for (typed, address) in [
            ("host", "host:5382"),
            ("host:1", "host:1"),
            ("::1", "[::1]:5382"),
            ("[::1]", "[::1]:5382"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(with_port(typed), address);
        }
    }

    #[test]
    fn merged_addresses_begin_with_the_first_list_and_are_bounded() {
        let texts =
            |numbers: std::ops::Range<u8>| numbers.map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(merged(&["b".into()], &["a".into(), "b".into()]), ["b", "a"]);
        assert_eq!(merged(&texts(0..6), &texts(3..20)), texts(0..8));
    }

    #[test]
    fn a_conflict_lists_a_bounded_number_of_keys() {
        let neighbour = |byte| Neighbour {
            name: "well".into(),
            identity: Identity::from_bytes([byte; 32]),
            addresses: vec!["192.0.2.1:7".parse().unwrap()],
        };
        let text = conflict("well", &[neighbour(1), neighbour(2)]);
        for byte in [1, 2] {
            assert!(
                text.contains(&format!("{} at 192.0.2.1:7", neighbour(byte).identity)),
                "{text}"
            );
        }
        let many: Vec<Neighbour> = (0..200).map(neighbour).collect();
        let text = conflict("well", &many);
        assert!(text.contains("200 different keys") && text.contains("196 more"), "{text}");
        assert!(text.len() < 1000, "{text}");
    }
}
