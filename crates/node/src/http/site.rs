//! The HTTP port of a node that keeps a catalogue.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use levada_catalogue::http::{self, Counters, Extra, Response, Site};
use levada_catalogue::index::{Index, Options};
use levada_catalogue::store::StoreError;
use levada_services::catalogue::{Keeper, KeeperError};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep, timeout};

use super::{OPENMETRICS, counted, trouble};
use crate::config::Catalogue;
use crate::running::Node;

const PLAIN: &str = "text/plain; charset=utf-8";
/// The last line of OpenMetrics.
const END: &str = "# EOF\n";
/// How long the index waits for a thread that steps aside.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often it is looked whether the databases answer.
const LOOK: Duration = Duration::from_secs(2);
/// After a failure, the index is brought up to date this much later.
const AGAIN: Duration = Duration::from_secs(1);

/// Answers until the node stops.
pub(super) async fn serve(
    node: Arc<Node>,
    keeper: Arc<Keeper>,
    listener: TcpListener,
    catalogue: Catalogue,
) {
    let options = Options { open: catalogue.open, defaults: catalogue.defaults };
    let index = match load(&keeper, options).await {
        Ok(index) => index,
        Err(text) => {
            tracing::error!(error = %text, "the catalogue is not served by HTTP");
            return super::serve_node(node, listener).await;
        }
    };
    let paths =
        Arc::new(Paths { node: node.clone(), trouble: Mutex::new(None), site: OnceLock::new() });
    let config = http::Config { hosts: catalogue.hosts, ..http::Config::default() };
    let extra = Box::new(Shared(paths.clone()));
    let site = Site::new(index.clone(), keeper.store(), config, Some(extra));
    // Nobody has set it before.
    let _ = paths.site.set(Arc::downgrade(&site));
    let stopped = {
        let node = node.clone();
        async move { node.stopping().await }
    };
    tokio::select! {
        served = http::serve(site, listener, stopped) => {
            if let Err(error) = served {
                tracing::error!(%error, "the HTTP port failed");
            }
        }
        () = follow(&keeper, &index) => {}
        () = look(&node, &paths) => {}
    }
}

async fn load(keeper: &Keeper, options: Options) -> Result<Arc<Index>, String> {
    let store = keeper.store();
    let loaded = spawn_blocking(move || Index::load(&*store, options)).await;
    let loaded = loaded.map_err(|error| error.to_string())?;
    loaded.map(Arc::new).map_err(|error: StoreError| error.to_string())
}

/// Brings the index up to date whenever something was changed. Never ends.
async fn follow(keeper: &Keeper, index: &Arc<Index>) {
    let mut changes = keeper.changes();
    loop {
        changes.mark_unchanged();
        if let Err(error) = catch_up(keeper, index).await {
            tracing::warn!(%error, "the catalogue's index does not follow its store");
            sleep(AGAIN).await;
            continue;
        }
        if changes.changed().await.is_err() {
            // The keeper goes with the node.
            std::future::pending::<()>().await;
        }
    }
}

/// Takes over what has changed. If that is little, it is prepared where it holds up nobody who reads; but then the
/// processors may be too busy for it.
async fn catch_up(keeper: &Keeper, index: &Arc<Index>) -> Result<(), KeeperError> {
    let preparing = index.clone();
    let prepare = keeper.aside(move |store| preparing.prepare(store));
    let is_done = match timeout(PATIENCE, prepare).await {
        Ok(Ok(update)) => update.is_none_or(|update| index.apply(update)),
        Ok(Err(KeeperError::Store(StoreError::Compacted { .. }))) | Err(_) => false,
        Ok(Err(error)) => return Err(error),
    };
    if is_done {
        return Ok(());
    }
    let index = index.clone();
    keeper.with(move |store| index.catch_up(store)).await.map(drop)
}

/// Keeps it known whether the databases answer. Never ends.
async fn look(node: &Node, paths: &Paths) {
    let mut ticks = interval(LOOK);
    loop {
        ticks.tick().await;
        let trouble = trouble(node).await;
        *paths.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// What the node answers beside its catalogue.
struct Paths {
    node: Arc<Node>,
    /// Why the node should get no new work.
    trouble: Mutex<Option<&'static str>>,
    site: OnceLock<Weak<Site>>,
}

struct Shared(Arc<Paths>);

impl Extra for Shared {
    fn answer(&self, path: &str) -> Option<Response> {
        let paths = &self.0;
        match path {
            "/healthz" => Some(Response::text(200, PLAIN, "ok\n")),
            "/readyz" => Some(paths.ready()),
            "/metrics" => Some(Response::text(200, OPENMETRICS, paths.metrics())),
            _ => None,
        }
    }
}

impl Paths {
    fn ready(&self) -> Response {
        if self.node.is_stopping() {
            return Response::text(503, PLAIN, "stopping\n");
        }
        match *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Response::text(200, PLAIN, "ready\n"),
            Some(text) => Response::text(503, PLAIN, text),
        }
    }

    fn metrics(&self) -> String {
        let mut text = counted(&self.node);
        if let Some(site) = self.site.get().and_then(Weak::upgrade) {
            text.truncate(text.strip_suffix(END).map_or(text.len(), str::len));
            // Writing to a String cannot fail.
            let _ = write_counters(&mut text, &site);
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
    writeln!(text, "# HELP {metric}_answers Answers by the first digit of their status.")?;
    writeln!(text, "# TYPE {metric}_answers counter")?;
    for (digit, count) in (1..).zip(answers) {
        let count = count.load(Ordering::Relaxed);
        writeln!(text, "{metric}_answers_total{{status=\"{digit}xx\"}} {count}")?;
    }
    writeln!(text, "# HELP {metric}_sent_bytes Bytes that were sent.")?;
    writeln!(text, "# TYPE {metric}_sent_bytes counter")?;
    writeln!(text, "{metric}_sent_bytes_total {}", sent.load(Ordering::Relaxed))?;
    writeln!(text, "# HELP levada_catalogue_objects Objects that everybody may see.")?;
    writeln!(text, "# TYPE levada_catalogue_objects gauge")?;
    for (kind, count) in site.index().count() {
        writeln!(text, "levada_catalogue_objects{{kind=\"{kind}\"}} {count}")?;
    }
    Ok(())
}
