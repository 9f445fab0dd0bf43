//! Services in a catalogue: descriptors of type `service`, and how a node keeps its own up to date.

use levada_catalogue::model::{Draft, Key, Kind, Published, Version};
use levada_core::{Identity, wire};
use levada_services::Description;
use levada_services::catalogue::{Keeper, KeeperError};
use serde::{Deserialize, Serialize};

use crate::running::{Node, reachable_addresses};

/// Objects that are read at a time.
const PAGE: u32 = 256;

/// A service, as the descriptor of its object says it. The object's name is the node's identity, a dot, and the
/// service's name, so that a right to publish may name one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalogued {
    /// The service's name on its node.
    #[serde(rename = "objectName")]
    pub name: String,
    /// The node's identity.
    pub node: String,
    /// What the node calls itself.
    pub node_name: String,
    /// Where it can be reached, as far as it knows.
    pub addresses: Vec<String>,
    /// The type of the service.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is for.
    pub category: String,
    /// The version of the service's own protocol and behaviour.
    pub version: String,
    /// Where it is; free text, may be empty.
    pub location: String,
    /// Each parameter and what it means.
    pub parameters: Vec<Parameter>,
    /// The framings that are allowed; the first is the default.
    pub framings: Vec<String>,
}

/// A parameter of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its key.
    pub key: String,
    /// What it means.
    pub meaning: String,
}

impl Catalogued {
    fn new(node: &Node, service: &Description) -> Self {
        let parameter = |(key, meaning): &(String, String)| Parameter {
            key: key.clone(),
            meaning: meaning.clone(),
        };
        Self {
            name: service.name.clone(),
            node: node.identity().to_string(),
            node_name: node.name.clone(),
            addresses: reachable_addresses(&node.listening),
            kind: service.kind.clone(),
            category: service.category.clone(),
            version: service.version.clone(),
            location: service.location.clone(),
            parameters: service.parameters.iter().map(parameter).collect(),
            framings: service.framings.iter().map(ToString::to_string).collect(),
        }
    }

    /// As the node itself would answer.
    pub fn service(&self) -> wire::Service {
        let parameter =
            |one: &Parameter| wire::Parameter { key: one.key.clone(), meaning: one.meaning.clone() };
        wire::Service {
            name: self.name.clone(),
            category: self.category.clone(),
            r#type: self.kind.clone(),
            version: self.version.clone(),
            location: self.location.clone(),
            parameters: self.parameters.iter().map(parameter).collect(),
            framings: self.framings.clone(),
        }
    }
}

/// What a published object of type `service` says, with the node that it is about. `None` if it is none that a node
/// has published: its own signature must be on it, and its name be that of the object.
pub fn service_of(published: &Published) -> Option<(Identity, Catalogued)> {
    let found: Catalogued = serde_json::from_slice(&published.descriptor).ok()?;
    let node: Identity = found.node.parse().ok()?;
    let named = published.key.kind == Kind::Service
        && published.key.name.as_str() == name(&node, &found.name);
    let digest = published.signed_digest();
    let mut own = published.signatures.iter().filter(|one| one.identity == node);
    let signed = own.any(|one| one.verify(&digest).is_ok());
    if named && signed { Some((node, found)) } else { None }
}

fn name(node: &Identity, service: &str) -> String {
    format!("{node}.{service}")
}

/// Publishes what the node offers, and takes back what it does not offer any more. That something of it fails is no
/// reason not to run.
pub(crate) async fn publish_services(node: &Node) {
    let Some(keeper) = &node.catalogue else { return };
    for offered in node.services.values() {
        if let Err(error) = publish(node, keeper, &offered.description).await {
            let service = &offered.description.name;
            tracing::warn!(%error, %service, "a service was not published in the catalogue");
        }
    }
    if let Err(error) = withdraw(node, keeper).await {
        tracing::warn!(%error, "services that are gone were not taken back in the catalogue");
    }
}

async fn publish(node: &Node, keeper: &Keeper, service: &Description) -> Result<(), KeeperError> {
    let Ok(name) = name(&node.identity(), &service.name).parse() else { return Ok(()) };
    let key = Key { kind: Kind::Service, name };
    // Strings in strings: this cannot fail.
    let descriptor = serde_json::to_vec(&Catalogued::new(node, service)).unwrap_or_default();
    let asked = key.clone();
    let versions = keeper.with(move |store| store.versions(&asked)).await?;
    let shown = versions.iter().rev().find(|one| !one.yanked);
    if shown.is_some_and(|shown| shown.descriptor == descriptor) {
        return Ok(());
    }
    let version = next(&service.version, versions.last().map(|last| &last.version));
    let mut draft = Draft { key, version, descriptor, package: None, signatures: Vec::new() };
    draft.sign(&node.key);
    keeper.publish(draft, Some(node.identity())).await?;
    Ok(())
}

/// The service's own version, or the next one behind what was published last: a node that moves, or gets another
/// configuration, publishes anew.
fn next(own: &str, last: Option<&Version>) -> Version {
    let own = Version::parse(own).unwrap_or(Version::new(0, 1, 0));
    match last {
        Some(last) if *last >= own => {
            Version::new(last.major, last.minor, last.patch.saturating_add(1))
        }
        _ => own,
    }
}

async fn withdraw(node: &Node, keeper: &Keeper) -> Result<(), KeeperError> {
    let own = format!("{}.", node.identity());
    let mut after: Option<Key> = None;
    loop {
        let (prefix, from) = (own.clone(), after);
        let list = move |store: &dyn levada_catalogue::store::Store| {
            store.list(Some(Kind::Service), &prefix, from.as_ref(), PAGE)
        };
        let keys = keeper.with(list).await?;
        for key in &keys {
            let service = key.name.as_str().strip_prefix(&own).unwrap_or_default();
            if !node.services.contains_key(service) {
                take_back(node, keeper, key).await?;
            }
        }
        if keys.len() < PAGE as usize {
            return Ok(());
        }
        after = keys.last().cloned();
    }
}

async fn take_back(node: &Node, keeper: &Keeper, key: &Key) -> Result<(), KeeperError> {
    let asked = key.clone();
    let versions = keeper.with(move |store| store.versions(&asked)).await?;
    for one in versions.into_iter().filter(|one| !one.yanked) {
        keeper.yank(key.clone(), one.version, true, Some(node.identity())).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::{SecretKey, SystemRandom, UnixTime};

    fn catalogued(node: &Identity) -> Catalogued {
        Catalogued {
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

    fn draft(name: &str, about: &Catalogued) -> Draft {
        Draft {
            key: Key { kind: Kind::Service, name: name.parse().unwrap() },
            version: Version::new(1, 0, 0),
            descriptor: serde_json::to_vec(about).unwrap(),
            package: None,
            signatures: Vec::new(),
        }
    }

    #[test]
    fn a_service_is_known_by_its_nodes_own_signature() {
        let [key, other] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        let about = catalogued(&key.identity());
        let right = name(&key.identity(), "echo");
        let read = |name: &str, signer: &SecretKey| {
            let mut draft = draft(name, &about);
            draft.sign(signer);
            service_of(&Published::new(&draft, None, UnixTime(1), 1))
        };
        assert_eq!(read(&right, &key), Some((key.identity(), about.clone())));
        assert_eq!(read(&right, &other), None);
        assert_eq!(read("echo", &key), None);
        let text = String::from_utf8(draft(&right, &about).descriptor).unwrap();
        assert!(text.contains(r#""objectName":"echo""#) && text.contains("nodeName"), "{text}");
    }

    #[test]
    fn every_publication_has_a_version_of_its_own() {
        assert_eq!(next("1.0.0", None), Version::new(1, 0, 0));
        assert_eq!(next("1.0.0", Some(&Version::new(1, 0, 0))), Version::new(1, 0, 1));
        assert_eq!(next("1.0.0", Some(&Version::new(1, 0, 7))), Version::new(1, 0, 8));
        assert_eq!(next("1.1.0", Some(&Version::new(1, 0, 7))), Version::new(1, 1, 0));
        assert_eq!(next("none", None), Version::new(0, 1, 0));
    }
}
