//! The state of a running node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use levada_channel::ServerConfig;
use levada_client::home::Home;
use levada_client::known::Known;
use levada_core::{Clock, Identity, SecretKey};
use levada_services::catalogue::CatalogueHandle;
use levada_session::Budget;
use tokio::sync::watch;

use crate::attempts::Attempts;
use crate::config::Limits;
use crate::connections::Connections;
use crate::forwards::Forwards;
use crate::half_open::HalfOpen;
use crate::limiter::Limiter;
use crate::listen::handed_out;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::policy::Policy;
use crate::services::Offered;
use crate::store::Store;

/// What ended a run of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was asked to stop.
    Stop,
    /// It starts again in the same process: its key or its state was replaced.
    Restart,
    /// As `Restart`, after taking over the backup in this folder.
    Restore(PathBuf),
}

/// The state that every task of a running node shares.
pub struct Node {
    pub(crate) home: Home,
    pub(crate) key: SecretKey,
    pub(crate) name: String,
    pub(crate) services: BTreeMap<String, Offered>,
    pub(crate) store: Arc<Store>,
    pub(crate) known: Known,
    pub(crate) catalogue: Option<Arc<CatalogueHandle>>,
    pub(crate) policy: Policy,
    pub(crate) forwards: Forwards,
    pub(crate) tls: ServerConfig,
    pub(crate) limits: Limits,
    pub(crate) session_expires: std::time::Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) live: Live,
    /// Wrong invitations.
    pub(crate) attempts: Attempts,
    /// Successions by source.
    pub(crate) successions: Limiter,
    /// Operations of peers that have not proved a right.
    pub(crate) operations: Limiter,
    /// Log lines about such peers.
    pub(crate) notices: Notices,
    pub(crate) half_open: HalfOpen,
    pub(crate) connections: Connections,
    /// Memory of connections whose peers have not proved a right.
    pub(crate) unproved: Arc<Budget>,
    pub(crate) metrics: Metrics,
    pub(crate) listening: Vec<SocketAddr>,
    pub(crate) advertise: Vec<String>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) started: Instant,
    pub(crate) ending: watch::Sender<Option<Ending>>,
}

impl Node {
    pub(crate) fn identity(&self) -> Identity {
        self.key.identity()
    }

    /// Where others are told that the node is: first at `asked`, then where it is advertised, then at its own addresses.
    pub(crate) fn addresses(&self, asked: &[String]) -> Vec<String> {
        handed_out(&self.listening, &[asked, &self.advertise].concat())
    }

    /// Asks the node to end; the first ending asked for holds.
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(ending);
            first
        });
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Waits until the node is asked to end.
    pub(crate) async fn stopping(&self) {
        let mut ending = self.ending.subscribe();
        // The sender lives in `self`.
        let _ = ending.wait_for(Option::is_some).await;
    }

    pub(crate) fn ending(&self) -> Ending {
        self.ending.borrow().clone().unwrap_or(Ending::Stop)
    }

    /// Runs `work` on the store, outside the tasks that serve the network: it waits for the disk.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> T {
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(result) => result,
            // The runtime is being torn down, or `work` panicked: neither can be answered.
            Err(error) => std::panic::resume_unwind(
                error.try_into_panic().unwrap_or_else(|_| Box::new("the runtime has ended")),
            ),
        }
    }
}
