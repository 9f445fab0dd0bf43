//! The argument that says where to start a session: NODE/SERVICE, or a capability.

use crate::failure::Failure;
use crate::names::Names;
use crate::secret_text;
use crate::service_target::ServiceTarget;
use levada_capability::Capability;
use levada_client::{Client, RequestSpec};
use levada_core::Framing;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Where a node is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// At its known addresses, if it has any.
    Known,
    /// Also where its key is announced on this network.
    Network,
}

/// A service at which a session is requested, or a capability for one: its text, `@file`, or `-`.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// A session is requested at this service.
    Service(ServiceTarget),
    /// The session was requested before.
    Capability(Zeroizing<String>),
}

impl Destination {
    /// The capability for one session with a service of type `kind`; requests one unless this is a
    /// capability already.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits; 2 if the service is of another type.
    pub async fn capability(
        &self,
        client: &Client,
        (names, search): (Names, Search),
        framing: Option<Framing>,
        kind: &str,
    ) -> Result<Capability, Failure> {
        let at = match self {
            Self::Service(at) => at,
            Self::Capability(text) => {
                let capability = secret_text::read(text)?;
                client.check_type_of(&capability, kind).await?;
                return Ok(capability);
            }
        };
        let target = match search {
            Search::Known => names.resolve_at_known(client, &at.node).await?,
            Search::Network => names.resolve(client, &at.node).await?,
        };
        client.check_type(&target, &at.service, kind).await?;
        let service = at.service.clone();
        let spec = RequestSpec { service, framing, uses: 1, ..RequestSpec::default() };
        Ok(client.request(&target, spec).await?)
    }
}

impl FromStr for Destination {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "-" || text.starts_with('@') || text.starts_with("lvcap1") {
            return Ok(Self::Capability(Zeroizing::new(text.to_owned())));
        }
        let at = text.parse().map_err(|_| "expected NODE/SERVICE, or a capability")?;
        Ok(Self::Service(at))
    }
}

/// Omits the text of a capability, which is a secret.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(at) => write!(f, "{at:?}"),
            Self::Capability(_) => f.write_str("a capability"),
        }
    }
}

/// For messages, as [`fmt::Debug`] without the text of a capability.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(at) => at.fmt(f),
            Self::Capability(text) if text.starts_with('@') => f.write_str(text),
            Self::Capability(_) => f.write_str("the node of the capability"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_capabilities_from_services() {
        for text in ["-", "@file", "lvcap1abc"] {
            let Ok(Destination::Capability(read)) = text.parse() else { panic!("{text}") };
            assert_eq!(read.as_str(), text);
        }
        let at = ServiceTarget { node: "well".into(), service: "screen".into() };
        assert_eq!("well/screen".parse(), Ok(Destination::Service(at)));
        assert!("well".parse::<Destination>().is_err());
        let secret: Destination = "lvcap1abc".parse().unwrap();
        assert!(!format!("{secret:?} {secret}").contains("abc"));
    }
}
