//! Assembles a node: key, databases, services, sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::sockets::Sockets;
use levada_core::{Clock, Identity, SecretKey, SystemClock};
use levada_service::Context;
use levada_services::catalogue::{CatalogueHandle, SwarmOffer};
use levada_services::registry;
use levada_services::swarm::Shares;
use tokio::sync::{Notify, watch};

use crate::calls::Calls;
use crate::catalogue;
use crate::dispatch::Admissions;
use crate::forwards::Forwards;
use crate::metrics::Metrics;
use crate::services;
use crate::store::Store;
use levada_capability::SWARM;
use levada_client::Client;
use levada_config::{Config, ForwardSource};
use levada_home::Home;
use levada_home::address::{Reach, reach};
use levada_home::known::Known;

use crate::error::UpError;
use crate::node::{Life, Node, Rights, Sharing};
use crate::overrides::Overrides;
use crate::peers::Peers;
use crate::policy::{Configured, GroupExchange, Inputs, Policy};
use crate::providing::Providing;

/// The description of a node that is ready.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// Its addresses: the advertised ones, then the addresses of this machine.
    pub addresses: Vec<String>,
    /// Its HTTP port.
    pub http: Option<SocketAddr>,
    /// Whether the HTTP port uses TLS.
    pub https: bool,
    /// The names of its services.
    pub services: Vec<String>,
    /// The name of its first service of type `clock`, for an example that works without parameters.
    pub clock: Option<String>,
    /// Notes for the operator, a line each.
    pub notes: Vec<String>,
}

/// A node that is ready to serve, with its sockets.
pub(super) struct Assembled {
    pub(super) node: Arc<Node>,
    pub(super) sockets: Sockets,
    pub(super) overrides: Overrides,
    pub(super) announcement: Announcement,
    /// Whether the node is announced by multicast DNS.
    pub(super) announced: bool,
    /// The file of the configuration.
    pub(super) started_with: toml::Table,
    /// What the HTTP port shows of its catalogue, and whether the node's services are published
    /// there.
    pub(super) catalogue: levada_config::Catalogue,
    /// The catalogues of other nodes in which its services are published.
    pub(super) publish_in: Vec<String>,
    /// Its forwards.
    pub(super) forwards: Vec<ForwardSource>,
}

/// Assembles the node of `home`. `previous` are the addresses of an earlier run in this process,
/// which are bound again.
pub(super) fn assemble(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    previous: &[SocketAddr],
) -> Result<Assembled, UpError> {
    let mut notes = Vec::new();
    let key = Arc::new(home.key().map_err(UpError::of)?);
    let store = Arc::new(Store::open(&home.node_db()).map_err(UpError::of)?);
    let client = Arc::new(Client::new(home).map_err(UpError::of)?);
    let known = client.known();
    let policy = policy(config, overrides, known, &store)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let catalogue = catalogue::open_if_needed(home, config, overrides, clock.clone())?;
    let builder = builder(catalogue.clone(), &key, client.clone());
    let lists = policy.lists();
    let names = (known, &lists.groups);
    let services = services::offered(config, overrides, names, &builder).map_err(UpError::of)?;
    if !overrides.only_catalogue {
        let missing = services::missing(config, &overrides.services).map_err(UpError::of)?;
        notes.extend(missing.iter().map(ToString::to_string));
    }
    let sockets = Sockets::bind(config, overrides, previous, &mut notes)?;
    store.now_at_least(clock.now()).map_err(UpError::of)?;
    store.set_retention(&config.retention).map_err(UpError::of)?;
    let middlebox = sockets.start_middlebox(&key, config, names, &mut notes)?;
    let network = sockets.network(config, overrides, &key, &services, middlebox)?;
    let sharing = sharing(home, config);
    if let Some(catalogue) = &catalogue {
        offer_swarm(catalogue, &sharing, &key, &store, &clock);
    }
    let metrics = Metrics::new(services.keys().map(String::as_str).chain([SWARM]));
    let node = Node {
        home: home.clone(),
        name: overrides.name.clone().or_else(|| config.name.clone()).unwrap_or_else(host_name),
        services,
        sharing,
        rights: Rights {
            policy,
            groups: GroupExchange::default(),
            store,
            session_expires: config.session_expires,
            retention: Notify::new(),
        },
        forwards: Forwards::new(client.clone()),
        client,
        catalogue,
        network,
        peers: Peers::new(&config.limits),
        clock,
        metrics,
        life: Life {
            started: Instant::now(),
            ending: watch::Sender::new(None),
            draining: watch::Sender::new(None),
        },
        key,
    };
    pin_self(&node, &mut notes);
    // An owner who has chosen the address that others use has thought of its reach.
    if node.network.advertise.is_empty() {
        notes.extend(note_on_reach(&node.own_addresses()));
    }
    let announcement = announcement(&node, sockets.has_tls(), notes);
    Ok(Assembled {
        node: Arc::new(node),
        sockets,
        overrides: overrides.clone(),
        announcement,
        announced: config.announce && !overrides.no_announce,
        started_with: config.source().clone(),
        catalogue: config.catalogue.clone(),
        publish_in: config.publish_in.clone(),
        // `catalogue serve` serves only the catalogue.
        forwards: if overrides.only_catalogue { Vec::new() } else { config.forwards.clone() },
    })
}

/// The lists of the configuration, with the groups of the store.
fn policy(
    config: &Config,
    overrides: &Overrides,
    known: &Known,
    store: &Store,
) -> Result<Policy, UpError> {
    let configured = Configured::new(config, overrides, known).map_err(UpError::of)?;
    let inputs = Inputs::load(configured, store, known).map_err(UpError::of)?;
    Policy::new(inputs).map_err(UpError::of)
}

/// Makes services of their definitions.
fn builder(
    catalogue: Option<Arc<CatalogueHandle>>,
    key: &SecretKey,
    client: Arc<Client>,
) -> services::Builder {
    let calls = Arc::new(Calls::new(client));
    services::Builder {
        registry: registry(catalogue),
        context: Context { node: key.identity(), client: calls },
    }
}

fn sharing(home: &Home, config: &Config) -> Sharing {
    let shares = Arc::new(Shares::new(config.swarm.peers));
    Sharing {
        swarm: services::swarm(&shares),
        shares,
        providing: Providing::new(home, config.swarm.provide),
        not_served: Mutex::default(),
    }
}

/// Lets the catalogue share long packages.
fn offer_swarm(
    catalogue: &CatalogueHandle,
    sharing: &Sharing,
    key: &SecretKey,
    store: &Arc<Store>,
    clock: &Arc<dyn Clock>,
) {
    let store = Arc::downgrade(store);
    let admission = Arc::new(Admissions { node: key.identity(), store, clock: clock.clone() });
    catalogue.offer_swarm(SwarmOffer::new(sharing.shares.clone(), admission));
}

/// Pins the node in its own home, so that its name works on its own machine. A failure becomes a
/// note.
fn pin_self(node: &Node, notes: &mut Vec<String>) {
    if let Err(text) = try_pin_self(node) {
        notes.push(format!("the name `{}` does not work on this machine: {text}", node.name));
    }
}

fn try_pin_self(node: &Node) -> Result<(), String> {
    let identity = node.identity();
    let known = node.client.known();
    let addresses = node.addresses(&[]);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match known.by_identity(&identity).map_err(|error| text(&error))? {
        // An identity has one name: if the node was renamed, its pin is renamed.
        Some(pin) if pin.name != node.name => {
            known.rename(&pin.name, &node.name).map_err(|error| text(&error))?;
        }
        Some(_) => {}
        None => known
            .pin(&node.name, &identity, &addresses, node.clock.now())
            .map_err(|error| text(&error))?,
    }
    known.update_addresses(&node.name, &addresses).map_err(|error| text(&error))?;
    Ok(())
}

fn announcement(node: &Node, https: bool, notes: Vec<String>) -> Announcement {
    Announcement {
        name: node.name.clone(),
        identity: node.identity(),
        addresses: node.own_addresses(),
        http: node.network.http,
        https,
        services: node.services.keys().cloned().collect(),
        clock: node
            .services
            .values()
            .map(|offered| &offered.description)
            .find(|description| description.kind == "clock")
            .map(|description| description.name.clone()),
        notes,
    }
}

/// A note, if no machine outside of the private network reaches the node at these addresses.
fn note_on_reach(addresses: &[String]) -> Option<String> {
    let all = || addresses.iter().map(|text| reach(text));
    let is_private = all().any(|reach| reach == Reach::PrivateNetwork)
        && all().all(|reach| reach != Reach::Everywhere);
    is_private.then(|| {
        "machines outside of this network reach none of these addresses; if one is to join, name \
         the address that it reaches, such as of the router: `advertise = \"HOST:PORT\"` in \
         config.toml"
            .to_owned()
    })
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default();
    if short.is_empty() { "node".into() } else { short.to_owned() }
}
