//! From what the user typed as NODE to an identity and addresses.

use std::collections::BTreeSet;
use std::str::FromStr;

use levada_capability::{Capability, Invitation};
use levada_core::{Framing, Identity, check_name};
use levada_discovery::{Neighbour, Targets, browse};

use super::{Client, ClientError};
use crate::address;
use crate::known::{MOST_ADDRESSES, Pin, PinError};

/// A node to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whose key it must present.
    pub identity: Identity,
    /// Where it may be, as [`crate::address`] describes: hints only.
    pub addresses: Vec<String>,
}

impl Target {
    /// A node at an address that the user has typed, with its port or without: it is dialled whatever it is.
    pub fn typed(identity: Identity, address: &str) -> Self {
        Self { identity, addresses: address::typed(&with_port(address)) }
    }
}

/// A node that announces itself under a name which is not pinned here. The name vouches for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// What it calls itself.
    pub name: String,
    /// The key that it claims to have.
    pub identity: Identity,
    /// Where it says that it is.
    pub addresses: Vec<String>,
}

/// What is to become of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its name stands for its key from now on.
    Accept,
    /// Somebody looked at the key and said no.
    Refuse,
    /// Nobody is there to decide.
    Unasked,
}

/// The port for everything encrypted.
pub const DEFAULT_PORT: u16 = 5382;

/// Keys that an error names.
const MOST_SHOWN: usize = 4;

impl Client {
    /// NODE is a nickname pinned here, `IDENTITY@host:port`, which is itself the answer to whom to trust, or
    /// IDENTITY alone. Anything else is a name that some node of this network may announce: `judge` decides
    /// whether it is to stand for that node's key, and it is pinned when the node has proven the key.
    ///
    /// Where a nickname or IDENTITY is not found at its known addresses, it is looked for on this network by
    /// its key, and the pin is corrected.
    ///
    /// # Errors
    /// [`ClientError::Denied`] for a name that nothing vouches for, or that several keys claim;
    /// [`ClientError::Unreachable`] if the node does not answer; [`ClientError::Usage`] for a malformed NODE, or a
    /// name that is neither pinned nor announced.
    pub async fn resolve(
        &self,
        node: &str,
        judge: impl FnOnce(&Stranger) -> Verdict,
    ) -> Result<Target, ClientError> {
        if let Some((identity, address)) = node.split_once('@') {
            return written_out(node, identity, address);
        }
        match self.known_target(node)? {
            Some(target) => Ok(self.reach(&target, Framing::Auto).await?.1),
            None => self.meet(node, judge).await,
        }
    }

    /// As [`Self::resolve`], for who only speaks of the node to somebody else: one whose addresses are known here is
    /// not called.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn identify(
        &self,
        node: &str,
        judge: impl FnOnce(&Stranger) -> Verdict,
    ) -> Result<Target, ClientError> {
        if !node.contains('@')
            && let Some(target) = self.known_target(node)?
            && !target.addresses.is_empty()
        {
            return Ok(target);
        }
        self.resolve(node, judge).await
    }

    /// What is known here of NODE without asking the network; `None` for a name that is not pinned.
    fn known_target(&self, node: &str) -> Result<Option<Target>, ClientError> {
        // An identity stands for itself, whatever somebody may have been named.
        if let Ok(identity) = node.parse::<Identity>() {
            let pin = self.known.by_identity(&identity).map_err(ClientError::local)?;
            let addresses = pin.map(|pin| pin.addresses).unwrap_or_default();
            return Ok(Some(Target { identity, addresses }));
        }
        let pin = self.known.by_name(node).map_err(ClientError::local)?;
        Ok(pin.as_ref().map(Target::from))
    }

    /// The first use of a name.
    async fn meet(
        &self,
        name: &str,
        judge: impl FnOnce(&Stranger) -> Verdict,
    ) -> Result<Target, ClientError> {
        let usage = "a NODE is a nickname, the name of a node on this network, IDENTITY, or IDENTITY@host:port";
        check_name(name)
            .map_err(|_| ClientError::Usage(format!("`{name}` is no NODE: {usage}")))?;
        let stranger = self.stranger(name).await?;
        match judge(&stranger) {
            Verdict::Accept => {}
            Verdict::Refuse => {
                let text = format!("{} was not accepted as `{name}`", stranger.identity);
                return Err(ClientError::Denied(text));
            }
            Verdict::Unasked => return Err(ClientError::Denied(unasked(&stranger))),
        }
        let Stranger { identity, addresses, .. } = stranger;
        let mut target = Target { identity, addresses };
        // Whoever claims a key that is not his must not be able to spoil the name.
        let (_, address) = self.new_connection(&target, Framing::Auto).await?;
        // The others may be what somebody else announced.
        target.addresses = merged(&[address], &target.addresses);
        match self.known.pin(name, &identity, &target.addresses, self.now()) {
            Ok(()) => Ok(target),
            Err(PinError::Store(error)) => Err(ClientError::local(error)),
            Err(refused) => Err(ClientError::Denied(refused.to_string())),
        }
    }

    /// The one node that announces itself under this name.
    async fn stranger(&self, name: &str) -> Result<Stranger, ClientError> {
        let targets = Targets { names: BTreeSet::from([name.to_owned()]), ..Targets::default() };
        let mut seen = browse(targets).await.map_err(|error| {
            ClientError::Usage(unknown(name, &format!("cannot be looked for: {error}")))
        })?;
        seen.neighbours.retain(|neighbour| neighbour.name == name);
        let neighbour = match <[Neighbour; 1]>::try_from(seen.neighbours) {
            Ok([neighbour]) => neighbour,
            Err(none) if none.is_empty() => {
                return Err(ClientError::Usage(unknown(name, "is not announced on this network")));
            }
            Err(several) => return Err(ClientError::Denied(conflict(name, &several))),
        };
        if let Some(pin) =
            self.known.by_identity(&neighbour.identity).map_err(ClientError::local)?
        {
            return Err(ClientError::Denied(format!(
                "`{name}` is what {} calls itself, which is known here as `{}`: write that",
                pin.identity, pin.name
            )));
        }
        let addresses = texts(&neighbour);
        Ok(Stranger { name: neighbour.name, identity: neighbour.identity, addresses })
    }

    /// Where a capability's node may be: its hints, and what is pinned here for that key.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read.
    pub fn target_of(&self, capability: &Capability) -> Result<Target, ClientError> {
        let identity = capability.node();
        let pin = self.known.by_identity(&identity).map_err(ClientError::local)?;
        let mut addresses = pin.map(|pin| pin.addresses).unwrap_or_default();
        for hint in capability.addresses() {
            if !addresses.contains(hint) {
                addresses.push(hint.clone());
            }
        }
        Ok(Target { identity, addresses })
    }

    /// Where a node may be for those who act at the wish of others: where it is pinned, and only without that
    /// where `hints` say. So nobody else chooses to what this machine connects in the place of a node that it knows.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the pins cannot be read.
    pub fn pinned_or(&self, identity: Identity, hints: &[String]) -> Result<Target, ClientError> {
        let pin = self.known.by_identity(&identity).map_err(ClientError::local)?;
        let pinned = pin.map(|pin| pin.addresses).filter(|addresses| !addresses.is_empty());
        let addresses = pinned.unwrap_or_else(|| hints.to_vec());
        Ok(Target { identity, addresses })
    }
}

/// `IDENTITY@host:port`: nothing is looked up.
fn written_out(node: &str, identity: &str, address: &str) -> Result<Target, ClientError> {
    let identity: Identity = identity.parse().map_err(ClientError::usage)?;
    if address.is_empty() {
        return Err(ClientError::Usage(format!("`{node}` has no address behind the @")));
    }
    Ok(Target::typed(identity, address))
}

fn unknown(name: &str, why: &str) -> String {
    format!(
        "no node is known here as `{name}`, and that name {why}: join the node with its invitation, \
         or write IDENTITY@host:port"
    )
}

fn unasked(stranger: &Stranger) -> String {
    let Stranger { name, identity, addresses } = stranger;
    let address = addresses.first().map(|text| address::shown(text)).unwrap_or_default();
    format!(
        "`{name}` is new here, and nobody is at a terminal to be asked: a node that says it is {identity} \
         announces that name. Compare this with `levada id` there; then repeat with --accept-new, \
         or write {identity}@{address}"
    )
}

fn conflict(name: &str, several: &[Neighbour]) -> String {
    let mut claims: Vec<String> = several.iter().take(MOST_SHOWN).map(claim).collect();
    if several.len() > MOST_SHOWN {
        claims.push(format!("{} more", several.len() - MOST_SHOWN));
    }
    let claims = claims.join(", ");
    format!(
        "`{name}` is announced under {} different keys: {claims}. Write IDENTITY@host:port for the one you mean",
        several.len()
    )
}

fn claim(neighbour: &Neighbour) -> String {
    let address = neighbour.addresses.first().map(ToString::to_string).unwrap_or_default();
    format!("{} at {address}", neighbour.identity)
}

/// The addresses of a neighbour, as they are pinned.
pub(super) fn texts(neighbour: &Neighbour) -> Vec<String> {
    neighbour.addresses.iter().take(MOST_ADDRESSES).map(address::of_socket).collect()
}

/// Addresses in the order in which to try them: each once, not too many, and none that only another machine can use.
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
            Some((identity, address)) => written_out(text, identity, address),
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
    // Pasted from where tags of machines are shown.
    let address = address.split_once('@').map_or(address, |(place, _)| place);
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
    fn the_default_port_is_added_where_none_is() {
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
    fn newly_found_addresses_come_first_and_old_ones_stay() {
        let texts =
            |numbers: std::ops::Range<u8>| numbers.map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(merged(&["b".into()], &["a".into(), "b".into()]), ["b", "a"]);
        assert_eq!(merged(&texts(0..6), &texts(3..20)), texts(0..8));
    }

    #[test]
    fn a_conflict_names_its_keys_but_not_thousands() {
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
