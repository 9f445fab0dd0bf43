//! From what the user typed as NODE to an identity and addresses.

use levada_capability::{Capability, Invitation};
use levada_core::Identity;

use super::{Client, ClientError};

/// A node to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whose key it must present.
    pub identity: Identity,
    /// Where it may be: `host:port` each, hints only.
    pub addresses: Vec<String>,
}

/// The port for everything encrypted.
pub const DEFAULT_PORT: u16 = 5382;

impl Client {
    /// NODE is a nickname pinned here, or `IDENTITY@host:port`, which is itself the answer to whom to trust.
    ///
    /// # Errors
    /// [`ClientError::Denied`] for a name that nothing vouches for; [`ClientError::Local`] for a malformed NODE.
    pub fn resolve(&self, node: &str) -> Result<Target, ClientError> {
        let Some((identity, address)) = node.split_once('@') else {
            return self.resolve_name(node);
        };
        let identity: Identity = identity.parse().map_err(ClientError::usage)?;
        if address.is_empty() {
            return Err(ClientError::Usage(format!("`{node}` has no address behind the @")));
        }
        Ok(Target { identity, addresses: vec![with_port(address)] })
    }

    fn resolve_name(&self, name: &str) -> Result<Target, ClientError> {
        // An identity stands for itself, whatever somebody may have been named.
        if let Ok(identity) = name.parse::<Identity>() {
            let pin = self.known.by_identity(&identity).map_err(ClientError::local)?;
            let addresses = pin.map(|pin| pin.addresses).unwrap_or_default();
            return Ok(Target { identity, addresses });
        }
        if let Some(pin) = self.known.by_name(name).map_err(ClientError::local)? {
            return Ok(Target { identity: pin.identity, addresses: pin.addresses });
        }
        Err(ClientError::Denied(format!(
            "no node is known here as `{name}`: join it with its invitation, or write IDENTITY@host:port"
        )))
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
}

impl From<&Invitation> for Target {
    fn from(invitation: &Invitation) -> Self {
        Self { identity: invitation.node(), addresses: invitation.addresses().to_vec() }
    }
}

/// Adds the default port to a bare host, IPv6 in brackets or not.
fn with_port(address: &str) -> String {
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    match address.rsplit_once(':') {
        _ if bare_v6 => format!("[{address}]:{DEFAULT_PORT}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => address.to_owned(),
        _ => format!("{address}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

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
}
