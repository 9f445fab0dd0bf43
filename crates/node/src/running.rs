//! A running node: put together from a home and its configuration, serving until it is stopped.

mod announcer;
mod assemble;
mod listen;
mod policy;
mod rotate;
mod stop;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use levada_channel::ServerConfig;
use levada_core::{Clock, Identity, SecretKey};
use levada_service::{Description, Service};
use levada_services::catalogue::CatalogueHandle;
use levada_session::Budget;
use thiserror::Error;
use tokio::sync::watch;

use crate::attempts::Attempts;
use crate::config::{Config, Limits, TlsFiles};
use crate::connections::Connections;
use crate::forward::Forwards;
use crate::half_open::HalfOpen;
use crate::limiter::Limiter;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::notices::Notices;
use levada_client::home::Home;
use levada_client::known::Known;

use crate::store::Store;

pub(crate) use listen::handed_out;
pub use listen::reachable_addresses;
pub use policy::Policy;
pub use rotate::rotate;

/// What the command line says over the configuration.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The node's name.
    pub name: Option<String>,
    /// Addresses to listen on; replaces the configured ones if not empty.
    pub listen: Vec<SocketAddr>,
    /// Where others are told that the node is; replaces what is configured if not empty.
    pub advertise: Vec<String>,
    /// Address of the HTTP port.
    pub http: Option<SocketAddr>,
    /// The certificate that it is served with.
    pub http_tls: Option<TlsFiles>,
    /// Identities that may request every service.
    pub allow: Vec<Identity>,
    /// Files with one service each.
    pub services: Vec<PathBuf>,
    /// Also offer `exec` of a few harmless commands.
    pub demo: bool,
    /// Do not announce the node, whatever the configuration says.
    pub no_announce: bool,
    /// Keep a catalogue, and offer nothing but services of this type.
    pub only_catalogue: bool,
}

/// What a node says of itself once it is ready.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: Identity,
    /// Where it can be reached, as far as it knows.
    pub addresses: Vec<String>,
    /// Its HTTP port.
    pub http: Option<SocketAddr>,
    /// Whether that is served with TLS.
    pub https: bool,
    /// What it offers.
    pub services: Vec<String>,
    /// The first service of type `clock`, which can be tried as it is.
    pub clock: Option<String>,
    /// Things that the person who started it should know, a line each.
    pub notes: Vec<String>,
}

/// Why a node could not be started or had to end.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UpError(pub String);

impl UpError {
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A service that the node offers.
pub(crate) struct Offered {
    pub(crate) description: Description,
    pub(crate) service: Arc<dyn Service>,
}

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
    ending: watch::Sender<Option<Ending>>,
}

/// Runs a node of `home` until it is stopped; `announce` is called each time it is ready.
///
/// # Errors
/// [`UpError`] says what stood in the way, and what to do.
pub async fn up(
    home: &Home,
    overrides: &Overrides,
    announce: impl Fn(&Announcement),
) -> Result<(), UpError> {
    let lock = home.lock().map_err(UpError::of)?;
    let mut addresses = Vec::new();
    loop {
        crate::adopt::finish_interrupted(home).map_err(UpError::of)?;
        rotate::finish_interrupted(home)?;
        let config = Config::load(&home.config_file()).map_err(UpError::of)?;
        let assembled = assemble::assemble(home, &config, overrides, &addresses)?;
        addresses = assembled.node.listening.clone();
        match stop::serve(assembled, &announce).await? {
            Ending::Stop => break,
            Ending::Restart => {}
            Ending::Restore(folder) => crate::adopt::adopt(home, &folder).map_err(UpError::of)?,
        }
    }
    drop(lock);
    Ok(())
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

#[cfg(test)]
mod tests;
