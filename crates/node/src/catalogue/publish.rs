//! Services in a catalogue: descriptors of type `service`, and how a node keeps its own up to date.

use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Kind, Published, Version};
use levada_core::wire::catalogue::{Cause, Detail};
use levada_core::{Identity, check_name, sha256, wire};
use levada_service::Description;
use levada_services::catalogue::{
    CatalogueClient, CatalogueError, Item, Principal, Rights, of_bytes, of_stream, serve,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::node::Node;
use levada_client::{Client, ClientError, RequestSpec, Running, Verdict};

/// How much is under way within this process, in bytes.
const ROOM: usize = 64 * 1024;
/// How long a catalogue elsewhere may take for all services.
const PATIENCE: Duration = Duration::from_secs(60);
/// When one that could not be reached is tried again.
const AGAIN: Duration = Duration::from_secs(60);

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

/// Where the node is for those who read a catalogue: without loopback, which means another machine to each of them, and
/// whose tag would change the published object with each boot.
fn published(node: &Node) -> Vec<String> {
    let mut addresses = node.addresses(&[]);
    addresses.retain(|text| !text.contains('@'));
    addresses
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
            addresses: published(node),
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
        let parameter = |one: &Parameter| wire::Parameter {
            key: one.key.clone(),
            meaning: one.meaning.clone(),
        };
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
    // As a node is asked itself: names are names, whichever key signed them.
    check_name(&found.node_name).and(check_name(&found.kind)).ok()?;
    let named = published.key.kind == Kind::Service
        && published.key.name.as_str() == name(&node, &found.name);
    if named && is_signed_by(&node, published) { Some((node, found)) } else { None }
}

fn is_signed_by(node: &Identity, published: &Published) -> bool {
    let digest = published.signed_digest();
    let mut own = published.signatures.iter().filter(|one| one.identity == *node);
    own.any(|one| one.verify(&digest).is_ok())
}

fn name(node: &Identity, service: &str) -> String {
    format!("{node}.{service}")
}

/// Publishes what the node offers in its own catalogue, and takes back what it does not offer any more. That something
/// of it fails is no reason not to run.
pub(crate) async fn publish_here(node: &Node) {
    let Some(handle) = &node.catalogue else { return };
    let (near, far) = tokio::io::duplex(ROOM);
    let (read, write) = tokio::io::split(far);
    let principal =
        Principal { identity: Some(node.identity()), rights: Rights::all(), max_package: 0 };
    let serving = serve(handle, &principal, of_bytes(read, write));
    let publishing = async {
        let (read, write) = tokio::io::split(near);
        let mut caller = CatalogueClient::new(of_bytes(read, write));
        let published = publish(node, &mut caller, Hurry::Yes).await;
        caller.finish().await;
        published
    };
    if let (_, Err(error)) = tokio::join!(serving, publishing) {
        tracing::warn!(%error, "the node's services were not published in its catalogue");
    }
}

/// Publishes what the node offers in the catalogues of `places`, NODE/SERVICE each. Tries again until it has succeeded.
pub(crate) async fn publish_elsewhere(node: Arc<Node>, mut places: Vec<String>) {
    while !places.is_empty() {
        let mut left = Vec::new();
        for place in places {
            if let Err(text) = publish_at(&node, &place).await {
                tracing::warn!(error = %text, %place, "the node's services were not published");
                left.push(place);
            }
        }
        places = left;
        if !places.is_empty() {
            sleep(AGAIN).await;
        }
    }
}

async fn publish_at(node: &Node, place: &str) -> Result<(), String> {
    let text = |error: ClientError| error.to_string();
    let (name, service) = place.rsplit_once('/').unwrap_or((place, ""));
    let client = Client::new(&node.home).map_err(text)?;
    let work = async {
        let target = client.resolve(name, |_| Verdict::Unasked).await.map_err(text)?;
        let spec = RequestSpec { service: service.to_owned(), uses: 1, ..RequestSpec::default() };
        let capability = client.request(&target, spec).await.map_err(text)?;
        let Running { stream, connection, .. } = client.connect(&capability).await.map_err(text)?;
        let mut caller = CatalogueClient::new(of_stream(stream));
        let published =
            publish(node, &mut caller, Hurry::No).await.map_err(|error| error.to_string());
        caller.finish().await;
        connection.close(0, "");
        published
    };
    let done = timeout(PATIENCE, work).await;
    client.close();
    done.map_err(|_| "the catalogue does not answer".to_owned())?
}

/// Whether somebody waits until it is published. What is published one by one steps aside for those who read.
#[derive(Clone, Copy)]
enum Hurry {
    Yes,
    No,
}

async fn publish(
    node: &Node,
    caller: &mut CatalogueClient,
    hurry: Hurry,
) -> Result<(), CatalogueError> {
    for offered in node.services.values() {
        publish_one(node, caller, &offered.description, hurry).await?;
    }
    withdraw(node, caller).await
}

async fn publish_one(
    node: &Node,
    caller: &mut CatalogueClient,
    service: &Description,
    hurry: Hurry,
) -> Result<(), CatalogueError> {
    let Ok(name) = name(&node.identity(), &service.name).parse() else { return Ok(()) };
    let key = Key { kind: Kind::Service, name };
    // Texts and lists of texts: this cannot fail.
    let descriptor = serde_json::to_vec(&Catalogued::new(node, service)).unwrap_or_default();
    let versions = versions(caller, &key).await?;
    let shown = versions.iter().rev().find(|one| !one.yanked);
    let is_ours = |shown: &Published| {
        // Others may have published the same, and nobody believes them.
        shown.digest == sha256(&[&descriptor]) && is_signed_by(&node.identity(), shown)
    };
    if shown.is_some_and(is_ours) {
        return Ok(());
    }
    let version = next(&service.version, versions.last().map(|last| &last.version));
    let mut draft = Draft { key, version, descriptor, package: None, signatures: Vec::new() };
    draft.sign(&node.key);
    match hurry {
        Hurry::Yes => {
            let outcomes = caller.publish_all(&[(draft, Vec::new())]).await?;
            outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
        }
        Hurry::No => caller.publish(&draft, &mut std::io::empty(), |_| {}).await.map(drop),
    }
}

/// All versions, ascending; none if there is no such object.
async fn versions(
    caller: &mut CatalogueClient,
    key: &Key,
) -> Result<Vec<Published>, CatalogueError> {
    let mut found = Vec::new();
    let each = |one: Published| {
        found.push(one);
        Ok::<_, CatalogueError>(())
    };
    match caller.versions(key, each).await {
        Err(CatalogueError::Failed { cause: Cause::Unknown, .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(()) => Ok(found),
    }
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

/// Takes back what the node has published and does not offer any more.
async fn withdraw(node: &Node, caller: &mut CatalogueClient) -> Result<(), CatalogueError> {
    let own = format!("{}.", node.identity());
    let mut gone = Vec::new();
    let each = |item: Item| {
        let service = item.key.name.as_str().strip_prefix(&own).unwrap_or_default();
        if item.newest.is_some() && !node.services.contains_key(service) {
            gone.push(item.key);
        }
        Ok::<_, CatalogueError>(())
    };
    caller.list(Some(Kind::Service), &own, 0, Detail::Newest, each).await?;
    for key in gone {
        for one in versions(caller, &key).await?.into_iter().filter(|one| !one.yanked) {
            caller.yank(&key, &one.version, true).await?;
        }
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
        let mut lie = draft(&right, &Catalogued { node_name: "\x1b[2J".into(), ..about.clone() });
        lie.sign(&key);
        assert_eq!(service_of(&Published::new(&lie, None, UnixTime(1), 1)), None);
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
