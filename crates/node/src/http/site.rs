//! The site of the HTTP port: the catalogue, and the paths of the node itself.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use levada_catalogue::http::{self, Extra, Response, Site};
use levada_catalogue::index::{Index, Options};
use levada_catalogue::store::{NoStore, Store, StoreError};
use levada_services::catalogue::{CatalogueHandle, HandleError};
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep, timeout};

use super::metrics;
use super::port::{Port, reload_on_hangup};
use crate::metrics::Disk;
use crate::node::Node;
use crate::store::DiskState;
use levada_config::Catalogue;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
/// How long the index waits for the low-priority thread before it updates at normal priority.
const LOW_PRIORITY_TIMEOUT: Duration = Duration::from_millis(100);
/// The interval of checks whether the databases answer.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The delay before the next update of the index after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Serves requests until the node stops. Without a catalogue, or if it cannot be read, only the
/// paths of the node.
pub(crate) async fn serve(node: Arc<Node>, port: Port, catalogue: Catalogue) {
    let handle = node.catalogue.clone();
    let options = Options { open: catalogue.open, defaults: catalogue.defaults };
    let loaded = match &handle {
        Some(handle) => load(handle, options).await,
        None => Ok(None),
    };
    let is_readable = loaded.is_ok();
    let shown = loaded.unwrap_or_else(|text| {
        tracing::error!(error = %text, "the catalogue is not served by HTTP");
        None
    });
    let paths = Arc::new(Paths {
        node: node.clone(),
        is_readable,
        unready: Mutex::new(None),
        site: OnceLock::new(),
    });
    let (tls, files) = port.tls.map(|it| (it.tls, it.files)).unzip();
    let config = http::Config {
        hosts: catalogue.hosts,
        connections: node.peers.limits.http_connections,
        per_source: node.peers.limits.http_per_source,
        catalogue: shown.is_some(),
        tls,
        ..http::Config::default()
    };
    let Some((index, store)) = shown.clone().or_else(empty) else { return };
    let site = Site::new(index, store, config, Some(Box::new(Shared(paths.clone()))));
    // It is set only here.
    let _ = paths.site.set(Arc::downgrade(&site));
    let stopped = {
        let node = node.clone();
        async move { node.stopping().await }
    };
    let renewed = Arc::downgrade(&site);
    let renew = |tls| {
        if let Some(site) = renewed.upgrade() {
            site.replace_tls(tls);
            tracing::info!("certificate of the HTTP port read again");
        }
    };
    let updates = async {
        match (&handle, &shown) {
            (Some(handle), Some((index, _))) => follow(handle, index).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        served = http::serve(site, port.listener, stopped) => {
            if let Err(error) = served {
                tracing::error!(%error, "the HTTP port failed");
            }
        }
        () = updates => {}
        () = check(&node, &paths) => {}
        () = reload_on_hangup(files, renew) => {}
    }
}

/// The index of the catalogue, and its store.
type Shown = (Arc<Index>, Arc<dyn Store>);

async fn load(handle: &CatalogueHandle, options: Options) -> Result<Option<Shown>, String> {
    let store = handle.store();
    let reading = store.clone();
    let loaded = spawn_blocking(move || Index::load(&*reading, options)).await;
    let loaded = loaded.map_err(|error| error.to_string())?;
    let index = loaded.map_err(|error: StoreError| error.to_string())?;
    Ok(Some((Arc::new(index), store)))
}

/// An empty index and store, for a node without a catalogue.
fn empty() -> Option<Shown> {
    let index = Index::load(&NoStore, Options::default()).ok()?;
    Some((Arc::new(index), Arc::new(NoStore)))
}

/// Updates the index after each change of the store. Does not return.
async fn follow(handle: &CatalogueHandle, index: &Arc<Index>) {
    let mut changes = handle.changes();
    loop {
        changes.mark_unchanged();
        if let Err(error) = catch_up(handle, index).await {
            tracing::warn!(%error, "could not update the catalogue's index; trying again");
            sleep(RETRY_DELAY).await;
            continue;
        }
        if changes.changed().await.is_err() {
            // The handle was dropped: the node ends.
            std::future::pending::<()>().await;
        }
    }
}

/// Applies the changes of the store to the index. A small update is prepared on the low-priority
/// thread, so that it does not delay readers; if that takes longer than [`LOW_PRIORITY_TIMEOUT`],
/// it is done at normal priority.
async fn catch_up(handle: &CatalogueHandle, index: &Arc<Index>) -> Result<(), HandleError> {
    let preparing = index.clone();
    let prepare = handle.low_priority(move |store| preparing.prepare(store));
    let is_done = match timeout(LOW_PRIORITY_TIMEOUT, prepare).await {
        Ok(Ok(update)) => update.is_none_or(|update| index.apply(update)),
        Ok(Err(HandleError::Store(StoreError::Compacted { .. }))) | Err(_) => false,
        Ok(Err(error)) => return Err(error),
    };
    if is_done {
        return Ok(());
    }
    let index = index.clone();
    handle.with(move |store| index.catch_up(store)).await.map(drop)
}

/// Why the node is not ready, in one line: a database does not answer, or the disk is full or
/// read-only.
async fn unready(node: &Node) -> Option<&'static str> {
    const DATABASE: &str = "the database does not answer\n";
    let folder = node.home.state_folder().to_owned();
    let database = node.home.node_db();
    let found = node.with_store(move |store| {
        let state = store.audit(1, None).map(|_| DiskState::of(&folder));
        (state, Disk::of(&database))
    });
    let (disk, space) = found.await;
    if let Some(space) = space {
        node.metrics.health.set_disk(&space);
    }
    if let Some(handle) = &node.catalogue
        && handle.with(|store| store.revision()).await.is_err()
    {
        return Some(DATABASE);
    }
    match disk {
        Ok(DiskState::Writable) => None,
        Ok(DiskState::Full) => Some("the disk is full\n"),
        Ok(DiskState::ReadOnly) => Some("the disk is read-only\n"),
        Err(_) => Some(DATABASE),
    }
}

/// Checks periodically whether the databases answer and the disk is writable. Does not return.
async fn check(node: &Node, paths: &Paths) {
    let mut ticks = interval(CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        let unready = unready(node).await;
        *paths.unready.lock().unwrap_or_else(PoisonError::into_inner) = unready;
    }
}

/// The paths of the node itself.
struct Paths {
    node: Arc<Node>,
    /// Why the node is not ready.
    unready: Mutex<Option<&'static str>>,
    /// Whether the catalogue could be read; true if there is none.
    is_readable: bool,
    site: OnceLock<Weak<Site>>,
}

struct Shared(Arc<Paths>);

impl Extra for Shared {
    fn answer(&self, path: &str) -> Option<Response> {
        let paths = &self.0;
        match path {
            "/healthz" => Some(Response::text(200, PLAIN, paths.health())),
            "/readyz" => Some(paths.ready()),
            "/metrics" => Some(Response::text(200, OPENMETRICS, paths.metrics())),
            _ => None,
        }
    }
}

impl Paths {
    fn ready(&self) -> Response {
        match self.not_ready() {
            // Also while the engine is away: reading goes on.
            None => Response::text(200, PLAIN, format!("ready\n{}", self.catalogue_state())),
            Some(text) => Response::text(503, PLAIN, text),
        }
    }

    /// Why the node should receive no new work, in one line. One that is stopping or draining, whose
    /// databases do not answer, or whose disk is full is alive but not ready.
    fn not_ready(&self) -> Option<&'static str> {
        if self.node.is_stopping() {
            return Some("stopping\n");
        }
        if self.node.drains_for().is_some() {
            return Some("draining\n");
        }
        if !self.is_readable {
            return Some("the catalogue cannot be read: see the log\n");
        }
        *self.unready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That the process answers; and of a catalogue that several nodes share, how far it is behind.
    fn health(&self) -> String {
        format!("ok\n{}", self.catalogue_state())
    }

    /// How far a catalogue that several nodes share is behind, in a line; empty for another one.
    fn catalogue_state(&self) -> String {
        let lag = self.node.catalogue.as_ref().and_then(|handle| handle.lag());
        lag.map_or_else(String::new, |lag| format!("catalogue: {lag}\n"))
    }

    fn metrics(&self) -> String {
        let site = self.site.get().and_then(Weak::upgrade);
        metrics::text(&self.node, site.as_deref(), self.not_ready().is_none())
    }
}
