//! The middlebox of a node: carries sessions of others, with the node's identity.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use levada_core::SecretKey;
use levada_home::known::Known;
use levada_services::middlebox::{Entry, Event, Failed, Middlebox, Policy};
use levada_transport::Traffic;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use levada_config::{self, ConfigError, Groups};

/// A running middlebox, for the state of the node.
pub(crate) struct NodeMiddlebox {
    middlebox: Arc<Middlebox>,
    listening: SocketAddr,
    next: Vec<String>,
}

impl NodeMiddlebox {
    /// The middlebox of `config`, which listens at `listening`.
    ///
    /// # Errors
    /// [`ConfigError`] for a name in `server` that is not pinned, and for a group without members.
    pub(crate) fn new(
        key: Arc<SecretKey>,
        config: &levada_config::Middlebox,
        (known, groups): (&Known, &Groups),
        listening: SocketAddr,
    ) -> Result<Self, ConfigError> {
        let mut servers = Vec::new();
        for server in &config.servers {
            let identities = server.identities(known, groups)?;
            // Without any server, sessions may end at every node.
            if identities.is_empty() {
                return Err(server.wrong("the group has no members yet".to_owned()));
            }
            servers.extend(identities);
        }
        let policy = Policy { next: config.next.clone(), servers, needs: config.plugins.needs() };
        let inspector = config.plugins.clone().inspectors(Arc::new(|entry| trace(&entry)));
        let middlebox = Middlebox::new(key, policy, config.resume, inspector);
        Ok(Self { middlebox, listening, next: config.next.clone() })
    }

    /// Carries the sessions of `listener` until `stop`, and those until they end; dropping the
    /// future ends them. `failed` is told of each that fails.
    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        failed: Failed,
    ) {
        self.middlebox.clone().serve(listener, stop, failed).await;
    }

    /// How many sessions it carries.
    pub(crate) fn sessions(&self) -> usize {
        self.middlebox.sessions()
    }

    /// The connections of its clients, and those to the next parties.
    pub(crate) fn traffic(&self) -> [&Traffic; 2] {
        [self.middlebox.client_traffic(), self.middlebox.next_traffic()]
    }

    /// Its description for `status`.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "listening": self.listening.to_string(),
            "next": self.next,
            "sessions": self.sessions(),
        })
    }
}

/// Writes an entry to the log of the node, with its values as fields.
fn trace(entry: &Entry) {
    let session = entry.session;
    match &entry.event {
        Event::Session { .. } | Event::Note { .. } => {
            tracing::info!(session, "{}", entry.event);
        }
        Event::Request { exchange, method, target, .. } => {
            tracing::info!(session, exchange, method, target, "{}", entry.event);
        }
        Event::Response { exchange, status, .. } => {
            tracing::info!(session, exchange, status, "{}", entry.event);
        }
    }
}
