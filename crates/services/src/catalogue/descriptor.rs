//! Descriptors of services in a catalogue: objects of type `service`.

use levada_catalogue::model::{Kind, Published};
use levada_core::{Identity, check_name, wire};
use serde::{Deserialize, Serialize};

/// The descriptor of a service. The object's name is the node's identity, a dot, and the service's
/// name, so that a right to publish can be limited to one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDescriptor {
    /// The service's name on its node.
    #[serde(rename = "objectName")]
    pub name: String,
    /// The node's identity.
    pub node: String,
    /// The node's name.
    pub node_name: String,
    /// The node's addresses.
    pub addresses: Vec<String>,
    /// The type of the service.
    #[serde(rename = "type")]
    pub kind: String,
    /// The category of the service.
    pub category: String,
    /// The version of the service's own protocol and behaviour.
    pub version: String,
    /// Its location: free text, may be empty.
    pub location: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// The allowed framings; the first is the default.
    pub framings: Vec<String>,
}

/// A parameter of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its key.
    pub key: String,
    /// Its meaning.
    pub meaning: String,
}

impl ServiceDescriptor {
    /// The description that the node itself would return to a query.
    pub fn service(&self) -> wire::Service {
        let parameter = |one: &Parameter| wire::Parameter {
            key: one.key.clone(),
            meaning: one.meaning.clone(),
            // The catalogue is public.
            values: Vec::new(),
        };
        wire::Service {
            name: self.name.clone(),
            category: self.category.clone(),
            r#type: self.kind.clone(),
            version: self.version.clone(),
            location: self.location.clone(),
            parameters: self.parameters.iter().map(parameter).collect(),
            framings: self.framings.clone(),
            // They are shown by the node itself.
            middleboxes: Vec::new(),
        }
    }
}

/// The node and the descriptor of a published object of type `service`. `None` unless the node
/// itself has published it: its signature must be valid, and the object's name must match.
pub fn service_of(published: &Published) -> Option<(Identity, ServiceDescriptor)> {
    let found: ServiceDescriptor = serde_json::from_slice(&published.descriptor).ok()?;
    let node: Identity = found.node.parse().ok()?;
    // The same rules as for the answers of a node: a signature does not make a name valid.
    check_name(&found.node_name).and(check_name(&found.kind)).ok()?;
    let name_matches = published.key.kind == Kind::Service
        && published.key.name.as_str() == object_name(&node, &found.name);
    if name_matches && is_signed_by(&node, published) { Some((node, found)) } else { None }
}

/// Returns true if a valid signature of `node` is among those of `published`.
pub fn is_signed_by(node: &Identity, published: &Published) -> bool {
    let digest = published.signed_digest();
    let mut own = published.signatures.iter().filter(|one| one.identity == *node);
    own.any(|one| one.verify(&digest).is_ok())
}

/// The name of the object for a service of a node.
pub fn object_name(node: &Identity, service: &str) -> String {
    format!("{node}.{service}")
}

#[cfg(test)]
mod tests {
    use levada_catalogue::model::{Draft, Key, Version};
    use levada_core::{SecretKey, SystemRandom, UnixTime};

    use super::*;

    fn descriptor(node: &Identity) -> ServiceDescriptor {
        ServiceDescriptor {
            name: "echo".into(),
            node: node.to_string(),
            node_name: "well".into(),
            addresses: vec!["192.0.2.1:5382".into()],
            kind: "echo".into(),
            category: "test".into(),
            version: "1.0.0".into(),
            location: String::new(),
            parameters: Vec::new(),
            framings: vec!["auto".into()],
        }
    }

    fn draft(name: &str, about: &ServiceDescriptor) -> Draft {
        Draft {
            key: Key { kind: Kind::Service, name: name.parse().unwrap() },
            version: Version::new(1, 0, 0),
            descriptor: serde_json::to_vec(about).unwrap(),
            package: None,
            signatures: Vec::new(),
        }
    }

    #[test]
    fn a_service_descriptor_needs_the_signature_of_its_node() {
        let [key, other] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        let about = descriptor(&key.identity());
        let right = object_name(&key.identity(), "echo");
        let read = |name: &str, signer: &SecretKey| {
            let mut draft = draft(name, &about);
            draft.sign(signer);
            service_of(&Published::new(&draft, None, UnixTime(1), 1))
        };
        assert_eq!(read(&right, &key), Some((key.identity(), about.clone())));
        assert_eq!(read(&right, &other), None);
        assert_eq!(read("echo", &key), None);
        let mut invalid =
            draft(&right, &ServiceDescriptor { node_name: "\x1b[2J".into(), ..about.clone() });
        invalid.sign(&key);
        assert_eq!(service_of(&Published::new(&invalid, None, UnixTime(1), 1)), None);
        let text = String::from_utf8(draft(&right, &about).descriptor).unwrap();
        assert!(text.contains(r#""objectName":"echo""#) && text.contains("nodeName"), "{text}");
    }
}
