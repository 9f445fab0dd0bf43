//! The sockets of a node, and what handshakes on them need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use levada_channel::ServerConfig;
use levada_config::{Config, Groups};
use levada_contexts::ServerPaths;
use levada_core::{Identity, SecretKey};
use levada_home::known::Known;
use tokio::net::TcpListener;

use crate::error::UpError;
use crate::http;
use crate::listen;
use crate::middlebox::NodeMiddlebox;
use crate::node::Network;
use crate::overrides::Overrides;
use crate::services::Offered;

/// The TLS tickets of a session with middleboxes: browsers open six connections to an origin.
const TICKETS: u8 = 8;

/// The bound sockets of a node.
pub(super) struct Sockets {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) http: Option<http::Port>,
    /// The socket of its middlebox.
    pub(super) middlebox: Option<TcpListener>,
}

impl Sockets {
    pub(super) fn bind(
        config: &Config,
        overrides: &Overrides,
        previous: &[SocketAddr],
        notes: &mut Vec<String>,
    ) -> Result<Self, UpError> {
        let listeners = listen::bind(config, overrides, previous, notes)?;
        let files = overrides.http_tls.as_ref().or(config.http_tls.as_ref());
        let tls = files.map(http::Certificate::load).transpose()?;
        let http = listen::bind_http(config, overrides, notes)?;
        let http = http.map(|listener| http::Port { listener, tls });
        let middlebox = listen::bind_middlebox(config.middlebox.as_ref(), overrides)?;
        Ok(Self { listeners, http, middlebox })
    }

    /// Returns true if the HTTP port uses TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.http.as_ref().is_some_and(|port| port.tls.is_some())
    }

    /// Prepares the middlebox of `config`, if it has one, and notes its address.
    pub(super) fn start_middlebox(
        &self,
        key: &Arc<SecretKey>,
        config: &Config,
        names: (&Known, &Groups),
        notes: &mut Vec<String>,
    ) -> Result<Option<NodeMiddlebox>, UpError> {
        let (Some(config), Some(listener)) = (&config.middlebox, &self.middlebox) else {
            return Ok(None);
        };
        let listening = listener.local_addr().map_err(UpError::of)?;
        notes.push(format!("sessions of others may lead through {}@{listening}", key.identity()));
        let middlebox = NodeMiddlebox::new(key.clone(), config, names, listening);
        middlebox.map(Some).map_err(UpError::of)
    }

    /// The network of the node with these self.
    pub(super) fn network(
        &self,
        config: &Config,
        overrides: &Overrides,
        key: &Arc<SecretKey>,
        services: &BTreeMap<String, Offered>,
        middlebox: Option<NodeMiddlebox>,
    ) -> Result<Network, UpError> {
        let tls = Arc::new(ServerConfig::new(key).map_err(UpError::of)?);
        let is_overridden = !overrides.advertise.is_empty();
        let advertise = if is_overridden { &overrides.advertise } else { &config.advertise };
        Ok(Network {
            listening: self.listeners.iter().flat_map(TcpListener::local_addr).collect(),
            udp: config.udp || overrides.udp,
            advertise: advertise.clone(),
            http: self.http.as_ref().and_then(|port| port.listener.local_addr().ok()),
            paths: server_paths(key, &tls, services),
            tls,
            middlebox,
        })
    }
}

/// For sessions with middleboxes: those that any service allows are accepted, before any
/// cryptography. The service that is started checks its own.
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
