//! Long packages are fetched from the nodes that provide them.

use std::fs;
use std::path::Path;

use levada_capability::{Capability, Rights};
use levada_client::{Client, RequestSpec, Verdict};
use levada_core::wire::catalogue::Cause;
use levada_core::{Params, encode_list};
use levada_services::catalogue::{Admitted, CatalogueClient, CatalogueError, of_stream};
use levada_services::swarm::join;
use serde_json::Value;

use super::files;
use crate::support::forward::noise;
use crate::support::{Home, Node, eventually, own_loopback};

/// The rights of guests at the hub, in addition to reading.
const RULES: &str =
    "[[service]]\nname = 'catalogue'\ntype = 'catalogue'\nrules = ['write hyperty/acme.*']\n";
const OBJECT: &str = "hyperty/acme.long@1.0.0";
const LENGTH: usize = 6_000_000;

/// A node whose address stays the same when it is started again.
fn hub<'a>(home: &'a Home, address: &str) -> Node<'a> {
    hub_with(home, address, RULES)
}

fn hub_with<'a>(home: &'a Home, address: &str, config: &str) -> Node<'a> {
    fs::write(home.path().join("config.toml"), config).unwrap();
    home.up_with(&format!("up --name hub --http 127.0.0.1:0 --no-announce --listen {address}:5382"))
}

/// Publishes a package from a node of its own, which ends.
fn publish_and_leave(hub: &Node<'_>, code: &[u8]) {
    let publisher = Home::new();
    hub.welcome(&publisher, "hub");
    let node = publisher.up("--no-announce");
    let (descriptor, package) = files(&publisher, "acme.long", code);
    let words = ["catalogue", "publish", OBJECT, &descriptor, "--package", &package];
    publisher.args([&words[..], &["--at", "hub/catalogue"]].concat()).ok();
    node.kill();
}

/// What `get` reports of the transfer of the package to `target`.
fn get(home: &Home, target: &Path, at: &str) -> Value {
    let path = target.to_str().unwrap();
    let words = ["catalogue", "get", OBJECT, "--json", "--package", path, "--at", at];
    let printed: Value = serde_json::from_str(&home.args(words).ok()).unwrap();
    printed["transfer"].clone()
}

/// The bytes from each node that provides the package. All bytes are accounted for.
fn from_peers(transfer: &Value) -> Vec<(String, u64)> {
    let peers = transfer["from_peers"].as_object().unwrap().iter();
    let peers: Vec<_> =
        peers.map(|(peer, bytes)| (peer.clone(), bytes.as_u64().unwrap())).collect();
    let all = transfer["from_node"].as_u64().unwrap();
    let all = all + peers.iter().map(|(_, bytes)| bytes).sum::<u64>();
    assert_eq!(all, LENGTH as u64, "{transfer}");
    peers
}

fn provider(hub: &Node<'_>) -> Home {
    let home = Home::new();
    fs::write(home.path().join("config.toml"), "[swarm]\nprovide = true\n").unwrap();
    hub.welcome(&home, "hub");
    home
}

fn provides(home: &Home) -> bool {
    home.json("swarm ls")["provided"][0]["connected"] == true
}

#[test]
fn a_package_comes_from_its_providers_after_its_publisher_has_ended() {
    let home = Home::new();
    let reader = Home::new();
    let code = noise(1, LENGTH);
    let hub = hub(&home, &own_loopback());
    publish_and_leave(&hub, &code);
    let homes = [provider(&hub), provider(&hub), provider(&hub)];
    let nodes = homes.each_ref().map(|home| home.up("--no-announce"));
    for (number, home) in homes.iter().enumerate() {
        let target = home.path().join("got.js");
        let peers = from_peers(&get(home, &target, "hub/catalogue"));
        // The first one has no other to fetch it from.
        assert!(number > 0 || peers.is_empty(), "{peers:?}");
        assert!(fs::read(&target).unwrap() == code);
        // The node has a copy of its own.
        fs::write(&target, "changed").unwrap();
        eventually("the node provides it", || provides(home));
    }
    let identities = homes.each_ref().map(Home::identity);
    hub.welcome(&reader, "hub");
    let target = reader.path().join("got.js");
    eventually("bytes have come from all three", || {
        let transfer = get(&reader, &target, "hub/catalogue");
        assert!(fs::read(&target).unwrap() == code);
        fs::remove_file(&target).unwrap();
        let peers = from_peers(&transfer);
        assert!(peers.iter().all(|(peer, _)| identities.contains(peer)), "{transfer}");
        assert_eq!(transfer["sent"], 0);
        peers.len() == 3
    });
    // Nothing but the package and the home of an identity is left.
    assert!(!reader.path().join("provided").exists());
    drop(nodes);
}

#[test]
fn providers_come_back_and_without_them_the_catalogue_sends_the_package() {
    let home = Home::new();
    let reader = Home::new();
    let code = noise(2, LENGTH);
    let address = own_loopback();
    let node = hub(&home, &address);
    publish_and_leave(&node, &code);
    node.welcome(&reader, "hub");
    let other = provider(&node);
    let providing = other.up("--no-announce");
    let [kept, target] = [&other, &reader].map(|home| home.path().join("got.js"));
    get(&other, &kept, "hub/catalogue");
    eventually("the node provides it", || provides(&other));
    providing.kill();
    let providing = other.up("--no-announce");
    eventually("the node provides it again", || provides(&other));
    node.kill();
    let node = hub(&home, &address);
    let fetch = || {
        let transfer = get(&reader, &target, "hub/catalogue");
        assert!(fs::read(&target).unwrap() == code);
        fs::remove_file(&target).unwrap();
        from_peers(&transfer).into_iter().map(|(peer, _)| peer).collect::<Vec<_>>()
    };
    eventually("the provider is back at the catalogue", || fetch() == [other.identity()]);
    providing.kill();
    eventually("the catalogue sends it", || fetch().is_empty());
    // A node that no longer provides has no copies.
    fs::write(other.path().join("config.toml"), "[swarm]\nprovide = false\n").unwrap();
    let _providing = other.up("--no-announce");
    eventually("the copy is removed", || !other.path().join("provided").exists());
    assert_eq!(other.json("swarm ls")["provided"], serde_json::json!([]));
    drop(node);
}

#[test]
fn a_reader_for_whom_the_swarm_has_no_place_gets_the_package_from_the_catalogue() {
    let home = Home::new();
    let reader = Home::new();
    let code = noise(4, LENGTH);
    let address = own_loopback();
    let node = hub(&home, &address);
    publish_and_leave(&node, &code);
    node.welcome(&reader, "hub");
    let other = provider(&node);
    let _providing = other.up("--no-announce");
    get(&other, &other.path().join("got.js"), "hub/catalogue");
    eventually("the node provides it", || provides(&other));
    node.kill();
    let config = format!("{RULES}[swarm]\npeers = 1\n");
    let _node = hub_with(&home, &address, &config);
    eventually("the provider is back", || provides(&other));
    let target = reader.path().join("got.js");
    let path = target.display().to_string();
    let words = ["catalogue", "get", OBJECT, "--package", &path, "--at", "hub/catalogue"];
    eventually("the swarm is full", || {
        let ran = reader.args(words);
        assert!(fs::read(&target).unwrap() == code);
        fs::remove_file(&target).unwrap();
        let said = ran.stderr.contains("as many peers as it allows");
        ran.ok();
        said
    });
    let left = fs::read_dir(reader.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_str().unwrap().starts_with("got.js")));
}

/// Asks the catalogue for admission with a capability.
async fn admit(client: &Client, capability: &Capability, object: &str) -> Result<Admitted, Cause> {
    let running = client.connect(capability).await.unwrap();
    let mut catalogue = CatalogueClient::new(of_stream(running.stream));
    let version = "1.0.0".parse().unwrap();
    match catalogue.admit(&object.parse().unwrap(), &version, true).await {
        Ok(admitted) => Ok(admitted),
        Err(CatalogueError::Failed { cause, .. }) => Err(cause),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn only_readers_of_a_package_are_admitted_and_only_themselves() {
    let home = Home::new();
    let alice = Home::new();
    let bob = Home::new();
    let node = hub(&home, &own_loopback());
    publish_and_leave(&node, &noise(3, 1 << 20));
    super::publish(&home, "hyperty/acme.short@1.0.0", &[]).ok();
    node.welcome(&alice, "hub");
    let client = |home: &Home| Client::new(&levada_home::Home::at(home.path()).unwrap()).unwrap();
    let alice = client(&alice);
    let bob = client(&bob);
    let hub = alice.resolve("hub", |_| Verdict::Unasked).await.unwrap();
    let mut params = Params::new();
    let rules = ["read hyperty/acme.long", "read hyperty/acme.short"];
    params.add(Params::ARGS, encode_list(&rules)).unwrap();
    let spec = RequestSpec { service: "catalogue".into(), uses: 9, ..RequestSpec::default() };
    let reading = RequestSpec { params, ..spec.clone() };
    let reading = alice.request(&hub, reading).await.unwrap();
    for (object, cause) in [
        ("hyperty/acme.other", Cause::Denied),
        ("runtime/acme.long", Cause::Denied),
        ("hyperty/acme.short", Cause::Invalid),
    ] {
        assert_eq!(admit(&alice, &reading, object).await.map(drop), Err(cause), "{object}");
    }
    let admitted = admit(&alice, &reading, "hyperty/acme.long").await.unwrap();
    assert_eq!(admitted.providers, 0);
    let capability = alice.admitted(admitted.granted.unwrap(), hub.clone(), &admitted.root);
    let capability = capability.unwrap();
    let refused = join(&bob, &capability).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("another identity"), "{refused}");
    let (link, description, _connection) = join(&alice, &capability).await.unwrap();
    assert_eq!(description.chunk.bytes(), 65_536);
    drop(link);
    // It gives no right to another content, nor to be passed on.
    assert!(!capability.rights().contains(Rights::DISTRIBUTE));
    let other = admit(&alice, &reading, "hyperty/acme.long").await.unwrap();
    assert!(alice.admitted(other.granted.unwrap(), hub, &[0; 32]).is_err());
}
