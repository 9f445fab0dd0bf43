//! The state of a running node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use levada_channel::ServerConfig;
use levada_client::Client;
use levada_contexts::ServerPaths;
use levada_core::{Clock, Identity, SecretKey, UnixTime};
use levada_home::Home;
use levada_home::address;
use levada_services::catalogue::CatalogueHandle;
use levada_services::swarm::Shares;
use tokio::sync::{Notify, watch};

use crate::forwards::Forwards;
use crate::metrics::Metrics;
use crate::middlebox::NodeMiddlebox;
use crate::peers::Peers;
use crate::policy::{GroupExchange, Policy};
use crate::providing::Providing;
use crate::services::Offered;
use crate::store::Store;

/// How a run of the node ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The process ends.
    Stop,
    /// The node starts again in the same process, because its key or its state was replaced.
    Restart,
    /// As `Restart`, after the backup in this folder was restored.
    Restore(PathBuf),
}

/// The state that all tasks of a running node share.
pub struct Node {
    pub(crate) home: Home,
    pub(crate) key: Arc<SecretKey>,
    pub(crate) name: String,
    pub(crate) services: BTreeMap<String, Offered>,
    pub(crate) sharing: Sharing,
    pub(crate) rights: Rights,
    /// The pins of the home, and the connections to other nodes.
    pub(crate) client: Arc<Client>,
    pub(crate) catalogue: Option<Arc<CatalogueHandle>>,
    pub(crate) forwards: Forwards,
    pub(crate) network: Network,
    pub(crate) peers: Peers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) life: Life,
}

/// The shares of a node, and the packages that it provides.
pub(crate) struct Sharing {
    /// The service of `shares`, for the bearers of their tickets. It is not among the services that
    /// clients see and request.
    pub(crate) swarm: Offered,
    pub(crate) shares: Arc<Shares>,
    pub(crate) providing: Providing,
    /// The reasons why shares are not served, by their numbers.
    pub(crate) not_served: Mutex<BTreeMap<i64, String>>,
}

/// The rights at a node.
pub(crate) struct Rights {
    /// The identities that may request sessions, and those that are blocked.
    pub(crate) policy: Policy,
    /// The exchange of groups with other nodes.
    pub(crate) groups: GroupExchange,
    /// The sessions, links, tickets and the audit log, on disk.
    pub(crate) store: Arc<Store>,
    /// The time until a session expires, unless its request sets it.
    pub(crate) session_expires: std::time::Duration,
    /// Notified when the retention has changed.
    pub(crate) retention: Notify,
}

/// The sockets of a node, and what handshakes need.
pub(crate) struct Network {
    pub(crate) listening: Vec<SocketAddr>,
    /// Whether it listens on UDP at the same addresses.
    pub(crate) udp: bool,
    pub(crate) advertise: Vec<String>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) tls: Arc<ServerConfig>,
    /// For sessions with middleboxes.
    pub(crate) paths: ServerPaths,
    /// The middlebox that the node is for sessions of others.
    pub(crate) middlebox: Option<NodeMiddlebox>,
}

/// The start and the end of a run of a node.
pub(crate) struct Life {
    pub(crate) started: Instant,
    pub(crate) ending: watch::Sender<Option<Ending>>,
    /// The time at which a draining node stops.
    pub(crate) draining: watch::Sender<Option<tokio::time::Instant>>,
}

impl Node {
    pub(crate) fn identity(&self) -> Identity {
        self.key.identity()
    }

    /// The name of `identity` here, or its key.
    pub(crate) fn shown_name(&self, identity: &Identity) -> String {
        let name = self.peers.names.of(identity);
        name.map_or_else(|| identity.to_string(), |name| name.to_string())
    }

    /// The addresses for other machines: first `preferred`, then the advertised ones, then those of
    /// this machine.
    pub(crate) fn addresses(&self, preferred: &[String]) -> Vec<String> {
        address::published(&self.network.listening, &[preferred, &self.network.advertise].concat())
    }

    /// The addresses for the user of this machine: first the advertised ones, then its own.
    pub(crate) fn own_addresses(&self) -> Vec<String> {
        let mut all = self.network.advertise.clone();
        for own in address::reachable(&self.network.listening) {
            if !all.contains(&own) {
                all.push(own);
            }
        }
        all
    }

    /// Ends the run of the node. Only the first call has an effect.
    pub(crate) fn end(&self, ending: Ending) {
        self.life.ending.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(ending);
            is_first
        });
    }

    /// Discards all TLS sessions, because the policy has changed and a resumption calls no
    /// verifier.
    pub(crate) fn forget_sessions(&self) {
        self.network.tls.forget_sessions();
        self.network.paths.sessions.clear();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.life.ending.borrow().is_some()
    }

    /// Waits until [`Self::end`] is called.
    pub(crate) async fn stopping(&self) {
        let mut ending = self.life.ending.subscribe();
        // This cannot fail: `self` has the sender.
        let _ = ending.wait_for(Option::is_some).await;
    }

    pub(crate) fn ending(&self) -> Ending {
        self.life.ending.borrow().clone().unwrap_or(Ending::Stop)
    }

    /// The time for decisions: never less than any time stored before.
    pub(crate) fn now(&self) -> UnixTime {
        let now = self.rights.store.now(self.clock.now());
        if now.jumped {
            tracing::warn!(
                clock = now.time.0,
                "the clock has jumped by more than a day; `levada doctor --accept-clock` accepts it"
            );
        }
        now.time
    }

    /// Runs `work` on the store in the blocking pool, because it waits for the disk.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> T {
        let store = self.rights.store.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(result) => result,
            // The runtime is shutting down, or `work` panicked.
            Err(error) => std::panic::resume_unwind(
                error.try_into_panic().unwrap_or_else(|_| Box::new("the runtime has ended")),
            ),
        }
    }
}
