//! Services in a catalogue: descriptors of type `service`, and the publication of the node's own
//! services.

use std::sync::Arc;
use std::time::Duration;

use levada_catalogue::model::{Draft, Key, Kind, Published, Version};
use levada_core::sha256;
use levada_core::wire::catalogue::{Cause, Detail};
use levada_service::Description;
use levada_services::catalogue::descriptor::{
    Parameter, ServiceDescriptor, is_signed_by, object_name,
};
use levada_services::catalogue::{
    CatalogueClient, CatalogueError, Item, Principal, Rights, of_bytes, of_stream, serve,
};
use tokio::time::{sleep, timeout};

use super::nodes::{Failures, in_random_order};
use crate::node::Node;
use levada_client::{ClientError, RequestSpec, Running, Verdict};

/// The buffer of the pipe to the node's own catalogue, in bytes.
const PIPE_BUFFER: usize = 64 * 1024;
/// The time for the publication of all services in a catalogue of another node.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay before the next attempt to publish in catalogues where it failed.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// The node's addresses without loopback: they mean another machine to each reader of a catalogue,
/// and their tag would change the published object with each boot.
fn public_addresses(node: &Node) -> Vec<String> {
    let mut addresses = node.addresses(&[]);
    addresses.retain(|text| !text.contains('@'));
    addresses
}

/// The descriptor of a service of this node.
fn descriptor(node: &Node, service: &Description) -> ServiceDescriptor {
    let parameter = |(key, meaning): &(String, String)| Parameter {
        key: key.clone(),
        meaning: meaning.clone(),
    };
    ServiceDescriptor {
        name: service.name.clone(),
        node: node.identity().to_string(),
        node_name: node.name.clone(),
        addresses: public_addresses(node),
        kind: service.kind.clone(),
        category: service.category.clone(),
        version: service.version.clone(),
        location: service.location.clone(),
        parameters: service.parameters.iter().map(parameter).collect(),
        framings: service.framings.iter().map(ToString::to_string).collect(),
    }
}

/// Publishes the node's services in its own catalogue, and withdraws those that it no longer has. A
/// failure is logged, and does not stop the node.
pub(crate) async fn publish_here(node: &Node) {
    let Some(handle) = &node.catalogue else { return };
    let (near, far) = tokio::io::duplex(PIPE_BUFFER);
    let (read, write) = tokio::io::split(far);
    let principal =
        Principal { identity: Some(node.identity()), rights: Rights::all(), max_package: 0 };
    let serving = serve(handle, &principal, of_bytes(read, write));
    let publishing = async {
        let (read, write) = tokio::io::split(near);
        let mut catalogue = CatalogueClient::new(of_bytes(read, write));
        let published = publish(node, &mut catalogue, Priority::Normal).await;
        catalogue.finish().await;
        published
    };
    if let (_, Err(error)) = tokio::join!(serving, publishing) {
        tracing::warn!(%error, "the node's services were not published in its catalogue");
    }
}

/// Publishes the node's services in the catalogues `targets`, each of them NODE/SERVICE, or a list
/// for a catalogue on several nodes. Retries until it has succeeded.
pub(crate) async fn publish_elsewhere(node: Arc<Node>, mut targets: Vec<String>) {
    while !targets.is_empty() {
        let mut failed = Vec::new();
        for target in targets {
            if let Err(text) = publish_at_one(&node, &target).await {
                tracing::warn!(error = %text, %target, "could not publish the node's services; trying again");
                failed.push(target);
            }
        }
        targets = failed;
        if !targets.is_empty() {
            sleep(RETRY_DELAY).await;
        }
    }
}

/// Publishes at one of the nodes of a catalogue. It is safe to repeat: a version is published once.
async fn publish_at_one(node: &Node, targets: &str) -> Result<(), String> {
    let mut failures = Failures::default();
    for target in in_random_order(targets) {
        match publish_at(node, target).await {
            Ok(()) => {
                failures.log_before(target);
                return Ok(());
            }
            Err(text) => failures.add(target, text),
        }
    }
    Err(failures.text())
}

async fn publish_at(node: &Node, target: &str) -> Result<(), String> {
    let text = |error: ClientError| error.to_string();
    let (name, service) = target.rsplit_once('/').unwrap_or((target, ""));
    let client = node.client.unshared();
    let work = async {
        let target = client.resolve(name, |_| Verdict::Unasked).await.map_err(text)?;
        let spec = RequestSpec { service: service.to_owned(), uses: 1, ..RequestSpec::default() };
        let capability = client.request(&target, spec).await.map_err(text)?;
        let Running { stream, connection, .. } = client.connect(&capability).await.map_err(text)?;
        let mut catalogue = CatalogueClient::new(of_stream(stream));
        let published =
            publish(node, &mut catalogue, Priority::Low).await.map_err(|error| error.to_string());
        catalogue.finish().await;
        connection.close(0, "");
        published
    };
    let done = timeout(PUBLISH_TIMEOUT, work).await;
    client.close();
    done.map_err(|_| "the catalogue does not answer".to_owned())?
}

/// The priority of a publication.
#[derive(Clone, Copy)]
enum Priority {
    /// As a batch, because the start of the node waits for it.
    Normal,
    /// One by one, on the catalogue's low-priority thread, so that it does not delay readers.
    Low,
}

async fn publish(
    node: &Node,
    catalogue: &mut CatalogueClient,
    priority: Priority,
) -> Result<(), CatalogueError> {
    for offered in node.services.values() {
        publish_one(node, catalogue, &offered.description, priority).await?;
    }
    withdraw(node, catalogue).await
}

async fn publish_one(
    node: &Node,
    catalogue: &mut CatalogueClient,
    service: &Description,
    priority: Priority,
) -> Result<(), CatalogueError> {
    let Ok(name) = object_name(&node.identity(), &service.name).parse() else { return Ok(()) };
    let key = Key { kind: Kind::Service, name };
    // Strings and lists of strings: this cannot fail.
    let descriptor = serde_json::to_vec(&descriptor(node, service)).unwrap_or_default();
    let versions = versions(catalogue, &key).await?;
    let shown = versions.iter().rev().find(|one| !one.yanked);
    let is_ours = |shown: &Published| {
        // The same object without this node's signature is not valid.
        shown.digest == sha256(&[&descriptor]) && is_signed_by(&node.identity(), shown)
    };
    if shown.is_some_and(is_ours) {
        return Ok(());
    }
    let version = next_version(&service.version, versions.last().map(|last| &last.version));
    let mut draft = Draft { key, version, descriptor, package: None, signatures: Vec::new() };
    draft.sign(&node.key);
    match priority {
        Priority::Normal => {
            let outcomes = catalogue.publish_all(&[(draft, Vec::new())]).await?;
            outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
        }
        Priority::Low => catalogue.publish(&draft, &mut std::io::empty(), |_| {}).await.map(drop),
    }
}

/// All versions, ascending; none if there is no such object.
async fn versions(
    catalogue: &mut CatalogueClient,
    key: &Key,
) -> Result<Vec<Published>, CatalogueError> {
    let mut found = Vec::new();
    let each = |one: Published| {
        found.push(one);
        Ok::<_, CatalogueError>(())
    };
    match catalogue.versions(key, each).await {
        Err(CatalogueError::Failed { cause: Cause::Unknown, .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(()) => Ok(found),
    }
}

/// The service's own version, or the successor of the last published version if that is not lower:
/// a node publishes again after its addresses or its configuration have changed.
fn next_version(own: &str, last: Option<&Version>) -> Version {
    let own = Version::parse(own).unwrap_or(Version::new(0, 1, 0));
    match last {
        Some(last) if *last >= own => {
            Version::new(last.major, last.minor, last.patch.saturating_add(1))
        }
        _ => own,
    }
}

/// Withdraws the published services that the node no longer has.
async fn withdraw(node: &Node, catalogue: &mut CatalogueClient) -> Result<(), CatalogueError> {
    let own = format!("{}.", node.identity());
    let mut gone = Vec::new();
    let each = |item: Item| {
        let service = item.key.name.as_str().strip_prefix(&own).unwrap_or_default();
        if item.newest.is_some() && !node.services.contains_key(service) {
            gone.push(item.key);
        }
        Ok::<_, CatalogueError>(())
    };
    catalogue.list(Some(Kind::Service), &own, 0, Detail::Newest, each).await?;
    for key in gone {
        for one in versions(catalogue, &key).await?.into_iter().filter(|one| !one.yanked) {
            catalogue.yank(&key, &one.version, true).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_publication_has_a_new_version() {
        assert_eq!(next_version("1.0.0", None), Version::new(1, 0, 0));
        assert_eq!(next_version("1.0.0", Some(&Version::new(1, 0, 0))), Version::new(1, 0, 1));
        assert_eq!(next_version("1.0.0", Some(&Version::new(1, 0, 7))), Version::new(1, 0, 8));
        assert_eq!(next_version("1.1.0", Some(&Version::new(1, 0, 7))), Version::new(1, 1, 0));
        assert_eq!(next_version("none", None), Version::new(0, 1, 0));
    }
}
