//! The right to show a program at a node. Its text is what one process hands to another.

use levada_capability::Capability;
use levada_client::{Client, RequestSpec, Verdict};
use levada_core::printable::escape;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use super::ShowError;

/// The type of the services that show programs.
pub const DISPLAY: &str = "display";

/// The right by which sessions are started.
#[derive(Clone, Debug)]
pub enum Right {
    /// Each session is requested from the node.
    Request {
        /// The node: a pinned name, or its identity with an address.
        node: String,
        /// The name of the service.
        service: String,
    },
    /// A capability. Each start counts as a use of it.
    Capability(Box<Capability>),
}

impl Right {
    /// A capability for one session; requests one unless this is a capability already.
    ///
    /// # Errors
    /// [`ShowError::Client`] if the node refuses or cannot be reached, or if the service is of
    /// another type.
    pub(super) async fn capability(&self, client: &Client) -> Result<Capability, ShowError> {
        let (node, service) = match self {
            Self::Request { node, service } => (node, service),
            Self::Capability(capability) => {
                client.check_type_of(capability, DISPLAY).await?;
                return Ok(capability.as_ref().clone());
            }
        };
        // The command has pinned a new name before it started this process.
        let target = client.resolve(node, |_| Verdict::Unasked).await?;
        client.check_type(&target, service, DISPLAY).await?;
        let spec = RequestSpec { service: service.clone(), uses: 1, ..RequestSpec::default() };
        Ok(client.request(&target, spec).await?)
    }

    /// The service, for messages; never the text of a capability.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Request { node, service } => format!("{node}/{service}"),
            Self::Capability(capability) => {
                format!("{}/{}", capability.node().short(), escape(capability.service()))
            }
        }
    }
}

/// NODE/SERVICE, or the text of a capability, which has no slash.
impl Serialize for Right {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Request { node, service } => {
                serializer.collect_str(&format_args!("{node}/{service}"))
            }
            Self::Capability(capability) => serializer.serialize_str(&capability.to_text()),
        }
    }
}

impl<'de> Deserialize<'de> for Right {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        if let Some((node, service)) = text.rsplit_once('/') {
            return Ok(Self::Request { node: node.to_owned(), service: service.to_owned() });
        }
        let capability = Capability::from_text(&text).map_err(D::Error::custom)?;
        Ok(Self::Capability(Box::new(capability)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_capability::{LinkBody, Rights, SessionId, mint};
    use levada_core::{Identity, Params, UnixTime, wire};

    fn capability() -> Capability {
        let body = LinkBody {
            identity: Identity::from_bytes([1; 32]),
            rights: Rights::ALL,
            expires: UnixTime::NEVER,
            uses: 1,
            max_run: None,
            params: Params::new(),
        };
        let node = Identity::from_bytes([2; 32]);
        let (link, secret) = mint(&[3; 32], &body, node, SessionId::from_bytes([4; 16])).unwrap();
        let granted = wire::Granted { link, secret: secret.to_vec(), framing: String::new() };
        Capability::from_granted(granted, "screen".into(), Vec::new()).unwrap()
    }

    #[test]
    fn both_kinds_are_written_as_one_text() {
        let capability = capability();
        let text = capability.to_text();
        let node = capability.node().short();
        for (right, text, label) in [
            (
                Right::Request { node: "lvabc@[::1]:5382".into(), service: "screen".into() },
                "lvabc@[::1]:5382/screen",
                "lvabc@[::1]:5382/screen".to_owned(),
            ),
            (Right::Capability(Box::new(capability)), text.as_str(), format!("{node}/screen")),
        ] {
            let encoded = serde_json::to_string(&right).unwrap();
            assert_eq!(encoded, format!("\"{text}\""));
            let decoded: Right = serde_json::from_str(&encoded).unwrap();
            assert_eq!(serde_json::to_string(&decoded).unwrap(), encoded);
            assert_eq!(decoded.label(), label);
        }
        for invalid in ["", "well", "lvcap1abc"] {
            assert!(serde_json::from_str::<Right>(&format!("\"{invalid}\"")).is_err());
        }
    }

    #[test]
    fn debug_omits_the_secret_of_a_capability() {
        let capability = capability();
        let text = capability.to_text();
        let shown = format!("{:?}", Right::Capability(Box::new(capability)));
        assert!(!shown.contains(text.as_str()) && !shown.contains("secret"), "{shown}");
    }
}
