//! The site of the HTTP port: the catalogue, and the paths of the node itself.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use levada_catalogue::http::{self, Counters, Extra, Response, Site};
use levada_catalogue::index::{Index, Options};
use levada_catalogue::store::{Lag, NoStore, Store, StoreError};
use levada_services::catalogue::{CatalogueHandle, HandleError};
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep, timeout};

use super::port::{Port, reload_on_hangup};
use crate::node::Node;
use crate::store::DiskState;
use levada_config::Catalogue;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
/// The last line of OpenMetrics.
const END: &str = "# EOF\n";
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
    let disk =
        node.with_store(move |store| store.audit(1, None).map(|_| DiskState::of(&folder))).await;
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
    /// Whether the node should receive new work. One that is stopping, whose databases do not
    /// answer, or whose disk is full is alive but not ready.
    fn ready(&self) -> Response {
        if self.node.is_stopping() {
            return Response::text(503, PLAIN, "stopping\n");
        }
        if !self.is_readable {
            return Response::text(503, PLAIN, "the catalogue cannot be read: see the log\n");
        }
        match *self.unready.lock().unwrap_or_else(PoisonError::into_inner) {
            // Also while the engine is away: reading goes on.
            None => Response::text(200, PLAIN, format!("ready\n{}", self.catalogue_state())),
            Some(text) => Response::text(503, PLAIN, text),
        }
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
        let node = &self.node;
        // Read here: tasks that set a gauge after each change could do so in another order than the
        // changes.
        let gauges = [
            (&node.metrics.half_open, node.peers.half_open.count()),
            (&node.metrics.connections, node.peers.connections.count()),
            (&node.metrics.sessions, node.peers.sessions.count()),
            (&node.metrics.unproved_memory, node.peers.unproved.used()),
        ];
        for (gauge, value) in gauges {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        node.metrics.unproved_closed.inner().store(node.peers.unproved.closed(), Ordering::Relaxed);
        let mut text = node.metrics.text();
        if let Some(site) = self.site.get().and_then(Weak::upgrade) {
            text.truncate(text.strip_suffix(END).map_or(text.len(), str::len));
            // Writing to a String cannot fail.
            let _ = write_counters(&mut text, &site);
            if let Some(lag) = node.catalogue.as_ref().and_then(|handle| handle.lag()) {
                let _ = write_lag(&mut text, &lag);
            }
            text.push_str(END);
        }
        text
    }
}

fn write_counters(text: &mut String, site: &Site) -> std::fmt::Result {
    let Counters { connections, open, answers, sent } = site.counters();
    let metric = "levada_catalogue_http";
    writeln!(text, "# HELP {metric}_connections Connections that were accepted.")?;
    writeln!(text, "# TYPE {metric}_connections counter")?;
    writeln!(text, "{metric}_connections_total {}", connections.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP {metric}_open Connections that are open.")?;
    writeln!(text, "# TYPE {metric}_open gauge")?;
    writeln!(text, "{metric}_open {}", open.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP {metric}_evicted Connections evicted for others.")?;
    writeln!(text, "# TYPE {metric}_evicted counter")?;
    writeln!(text, "{metric}_evicted_total {}", site.evicted())?;
    writeln!(text, "# HELP {metric}_answers Answers by the first digit of their status.")?;
    writeln!(text, "# TYPE {metric}_answers counter")?;
    for (digit, count) in (1..).zip(answers) {
        let count = count.load(Ordering::Relaxed);
        writeln!(text, "{metric}_answers_total{{status=\"{digit}xx\"}} {count}")?;
    }
    writeln!(text, "# HELP {metric}_sent_bytes Bytes that were sent.")?;
    writeln!(text, "# TYPE {metric}_sent_bytes counter")?;
    writeln!(text, "{metric}_sent_bytes_total {}", sent.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP levada_catalogue_objects Objects that are public.")?;
    writeln!(text, "# TYPE levada_catalogue_objects gauge")?;
    for (kind, count) in site.index().count() {
        writeln!(text, "levada_catalogue_objects{{kind=\"{kind}\"}} {count}")?;
    }
    Ok(())
}

fn write_lag(text: &mut String, lag: &Lag) -> std::fmt::Result {
    writeln!(text, "# HELP levada_catalogue_behind Changes that are known and not applied yet.")?;
    writeln!(text, "# TYPE levada_catalogue_behind gauge")?;
    writeln!(text, "levada_catalogue_behind {}", lag.changes)?;
    writeln!(
        text,
        "# HELP levada_catalogue_away_seconds For how long the engine has had no news."
    )?;
    writeln!(text, "# TYPE levada_catalogue_away_seconds gauge")?;
    writeln!(text, "levada_catalogue_away_seconds {}", lag.away.as_secs_f64())?;
    let metric = "levada_catalogue_rejected";
    writeln!(text, "# HELP {metric} Records of the log that conflict with earlier ones.")?;
    writeln!(text, "# TYPE {metric} gauge")?;
    writeln!(text, "{metric} {}", lag.rejected)
}
