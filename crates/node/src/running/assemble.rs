//! Assembles a node: key, databases, services, sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::ServerConfig;
use levada_contexts::ServerPaths;
use levada_core::wire::Reason;
use levada_core::{Clock, Identity, SecretKey, SystemClock};
use levada_service::Context;
use levada_services::catalogue::SwarmOffer;
use levada_services::registry;
use levada_services::swarm::Shares;
use levada_session::Budget;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::attempts::Attempts;
use crate::calls::Calls;
use crate::catalogue;
use levada_config::{self, Config, ForwardSource};
use crate::dispatch::{Admissions, OPERATION_TIMEOUT};
use crate::forwards::Forwards;
use crate::http;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::middlebox::NodeMiddlebox;
use crate::permits::SourcePermits;
use crate::services::{self, Offered};
use crate::store::Store;
use levada_client::Client;
use levada_home::Home;
use levada_home::known::Known;

use crate::error::UpError;
use crate::listen;
use crate::node::Node;
use crate::overrides::Overrides;
use crate::policy::Policy;
use crate::providing::Providing;

/// The description of a node that is ready.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// Its addresses.
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

/// The new successions that one source, and all together, may present within [`SUCCESSIONS_PERIOD`].
const SUCCESSIONS: (usize, usize) = (32, 1000);
const SUCCESSIONS_PERIOD: Duration = Duration::from_secs(3600);
/// The exchanges of tickets of one source at a time; others wait.
const EXCHANGES: usize = 64;
/// The TLS tickets of a session with middleboxes: browsers open six connections to an origin.
const TICKETS: u8 = 8;

/// A node that is ready to serve, with its sockets.
pub(super) struct Assembled {
    pub(super) node: Arc<Node>,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) http: Option<http::Port>,
    /// The socket of its middlebox.
    pub(super) middlebox: Option<TcpListener>,
    pub(super) overrides: Overrides,
    pub(super) announcement: Announcement,
    /// Whether the node is announced by multicast DNS.
    pub(super) announced: bool,
    /// The file of the configuration.
    pub(super) started_with: toml::Table,
    /// What the HTTP port shows of its catalogue, and whether the node's services are published there.
    pub(super) catalogue: levada_config::Catalogue,
    /// The catalogues of other nodes in which its services are published.
    pub(super) publish_in: Vec<String>,
    /// Its forwards.
    pub(super) forwards: Vec<ForwardSource>,
}

/// Assembles the node of `home`. `previous` are the addresses of an earlier run in this process, which are bound again.
pub(super) fn assemble(
    home: &Home,
    config: &Config,
    overrides: &Overrides,
    previous: &[SocketAddr],
) -> Result<Assembled, UpError> {
    let mut notes = Vec::new();
    let key = home.key().map_err(UpError::of)?;
    let store = Store::open(&home.node_db()).map_err(UpError::of)?;
    let client = Arc::new(Client::new(home).map_err(UpError::of)?);
    let known = client.known();
    let policy = Policy::new(config, overrides, known, &store).map_err(UpError::of)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let catalogue = catalogue::open_if_needed(home, config, overrides, clock.clone())?;
    let calls = Arc::new(Calls::new(client.clone()));
    let builder = services::Builder {
        registry: registry(catalogue.clone()),
        context: Context { node: key.identity(), client: calls },
    };
    let offered = services::offered(config, overrides, known, &builder).map_err(UpError::of)?;
    if !overrides.only_catalogue {
        let missing = services::missing(config, &overrides.services).map_err(UpError::of)?;
        notes.extend(missing.iter().map(ToString::to_string));
    }
    let listeners = listen::bind(config, overrides, previous, &mut notes)?;
    let files = overrides.http_tls.as_ref().or(config.http_tls.as_ref());
    let tls = files.map(http::Certificate::load).transpose()?;
    let http = listen::bind_http(config, overrides, &mut notes)?;
    let http = http.map(|listener| http::Port { listener, tls });
    let middlebox = listen::bind_middlebox(config.middlebox.as_ref(), overrides)?;
    let listening = listeners.iter().flat_map(TcpListener::local_addr).collect::<Vec<_>>();
    let name = overrides.name.clone().or_else(|| config.name.clone()).unwrap_or_else(host_name);
    store.now_at_least(clock.now()).map_err(UpError::of)?;
    let key = Arc::new(key);
    let own_middlebox = match (&config.middlebox, &middlebox) {
        (Some(config), Some(listener)) => {
            Some(start_middlebox(&key, config, known, listener, &mut notes)?)
        }
        _ => None,
    };
    let tls = Arc::new(ServerConfig::new(&key).map_err(UpError::of)?);
    let paths = server_paths(&key, &tls, &offered);
    let shares = Arc::new(Shares::new(config.swarm.peers));
    let store = Arc::new(store);
    if let Some(catalogue) = &catalogue {
        let node = key.identity();
        let store = Arc::downgrade(&store);
        let clock = clock.clone();
        let admission = Arc::new(Admissions { node, store, clock });
        catalogue.offer_swarm(SwarmOffer::new(shares.clone(), admission));
    }
    let node = Node {
        home: home.clone(),
        tls,
        paths,
        name,
        services: offered,
        swarm: services::swarm(&shares),
        shares,
        providing: Providing::new(home, config.swarm.provide),
        store,
        forwards: Forwards::new(client.clone()),
        middlebox: own_middlebox,
        client,
        catalogue,
        policy,
        limits: config.limits,
        session_expires: config.session_expires,
        clock,
        sessions: Default::default(),
        attempts: Attempts::new(
            config.limits.invitation_attempts,
            config.limits.invitation_attempts_total,
        ),
        not_served: Default::default(),
        exchanges: SourcePermits::new(EXCHANGES),
        successions: Limiter::new(SUCCESSIONS.0, SUCCESSIONS.1, SUCCESSIONS_PERIOD),
        operations: Limiter::new(
            config.limits.operations,
            config.limits.operations_total,
            Duration::from_secs(1),
        ),
        log_limiter: Default::default(),
        half_open: Default::default(),
        connections: Default::default(),
        unproved: Budget::new(
            config.limits.unproved_memory.saturating_mul(1 << 20),
            OPERATION_TIMEOUT,
            Reason::Busy.close_code(),
        ),
        metrics: Metrics::new(),
        http: http.as_ref().and_then(|port| port.listener.local_addr().ok()),
        started: Instant::now(),
        ending: watch::Sender::new(None),
        listening,
        udp: config.udp || overrides.udp,
        advertise: if overrides.advertise.is_empty() {
            config.advertise.clone()
        } else {
            overrides.advertise.clone()
        },
        key,
    };
    pin_self(&node, &mut notes);
    let https = http.as_ref().is_some_and(|port| port.tls.is_some());
    let announcement = announcement(&node, https, notes);
    Ok(Assembled {
        node: Arc::new(node),
        listeners,
        http,
        middlebox,
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

/// Prepares the middlebox of `config`, and notes its address.
fn start_middlebox(
    key: &Arc<SecretKey>,
    config: &levada_config::Middlebox,
    known: &Known,
    listener: &TcpListener,
    notes: &mut Vec<String>,
) -> Result<NodeMiddlebox, UpError> {
    let listening = listener.local_addr().map_err(UpError::of)?;
    notes.push(format!("sessions of others may lead through {}@{listening}", key.identity()));
    NodeMiddlebox::new(key.clone(), config, known, listening).map_err(UpError::of)
}

/// For sessions with middleboxes: those that any service allows are accepted, before any cryptography. The service that is started checks its own.
fn server_paths(
    key: &Arc<SecretKey>,
    config: &Arc<ServerConfig>,
    services: &BTreeMap<String, Offered>,
) -> ServerPaths {
    let allowed: BTreeSet<Identity> = services
        .values()
        .flat_map(|offered| offered.service.middleboxes())
        .map(|one| one.identity)
        .collect();
    ServerPaths {
        config: config.clone(),
        key: key.clone(),
        sessions: Arc::default(),
        tickets: TICKETS,
        policy: Arc::new(move |path| {
            let unknown = path.hops.iter().find(|hop| !allowed.contains(&hop.party.identity));
            match unknown {
                None => Ok(()),
                Some(hop) => Err(format!("no service allows the middlebox {}", hop.party.identity)),
            }
        }),
    }
}

/// Pins the node in its own home, so that its name works on its own machine. A failure becomes a note.
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
        addresses: levada_home::address::reachable(&node.listening),
        http: node.http,
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

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = name.split('.').next().unwrap_or_default();
    if short.is_empty() { "node".into() } else { short.to_owned() }
}
