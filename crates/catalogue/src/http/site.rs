//! What is served: an index over a store, with the caches, limits and counters that all connections
//! share.

mod bodies;
mod limits;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use rustix::process::{Resource, getrlimit};
use tokio_rustls::TlsAcceptor;

use super::behind::Behind;
use super::config::Config;
use super::events::Source;
use super::response::{CachePolicy, Response};
use super::tls::Tls;
use crate::index::Index;
use crate::store::Store;
use bodies::Bodies;
use limits::Limits;

/// Paths that the node answers itself, such as `/metrics`. They are answered even when all
/// connections are in use.
pub trait Extra: Send + Sync {
    /// The response to GET of `path`; `None` for any other path. Must not block.
    fn answer(&self, path: &str) -> Option<Response>;
}

/// What is served.
pub struct Site {
    pub(super) index: Arc<Index>,
    pub(super) store: Arc<dyn Store>,
    behind: Behind,
    pub(super) config: Config,
    extra: Option<Box<dyn Extra>>,
    tls: ArcSwapOption<Tls>,
    pub(super) limits: Limits,
    pub(super) bodies: Bodies,
    pub(super) counters: Counters,
    /// The serialized OpenAPI document.
    pub(super) openapi: OnceLock<Bytes>,
    /// How many connections have a request to answer.
    pub(super) busy: AtomicUsize,
    stopping: Arc<AtomicBool>,
}

impl Site {
    /// A site over `index`, which follows `store`.
    pub fn new(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        mut config: Config,
        extra: Option<Box<dyn Extra>>,
    ) -> Arc<Self> {
        config.connections = max_connections(config.connections);
        let tls = config.tls.take();
        // A watch keeps its connection: half of the connections stay available to other requests.
        config.watches = config.watches.min((config.connections / 2).max(1));
        Arc::new(Self {
            index,
            behind: Behind::new(&*store),
            store,
            extra,
            tls: ArcSwapOption::new(tls.map(Arc::new)),
            limits: Limits::new(&config),
            bodies: Bodies::new(config.cache),
            config,
            counters: Counters::default(),
            openapi: OnceLock::new(),
            busy: AtomicUsize::new(0),
            stopping: Arc::default(),
        })
    }

    /// The counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The index that is served.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Polls the store every `every` and updates the index, for a store that other processes write
    /// to. Never returns.
    pub async fn follow(self: Arc<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let site = Arc::clone(&self);
            let caught_up =
                tokio::task::spawn_blocking(move || site.index.catch_up(&*site.store)).await;
            if let Ok(Err(error)) = caught_up {
                tracing::warn!(%error, "the catalogue's index does not follow its store");
            }
        }
    }

    /// Serves new connections with another certificate. Does nothing for a site without TLS.
    pub fn replace_tls(&self, tls: Tls) {
        if self.tls.load().is_some() {
            self.tls.store(Some(Arc::new(tls)));
        }
    }

    /// How many connections were closed to make room for others.
    pub fn evicted(&self) -> u64 {
        self.limits.connections.evicted()
    }

    /// How many connections have a request to answer.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    pub(super) fn tls_acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.load().as_ref().map(|tls| tls.acceptor())
    }

    /// `response` with how far the catalogue is behind, unless it never changes.
    pub(super) fn mark_behind(&self, response: Response) -> Response {
        self.behind.mark(response, &*self.store)
    }

    /// The response of [`Extra`] to GET of `path`, if it has one. Caches must not store it.
    pub(super) fn extra_response(&self, path: &str) -> Option<Response> {
        let response = self.extra.as_ref().and_then(|extra| extra.answer(path))?;
        Some(response.cache_policy(CachePolicy::NoStore))
    }

    /// Where an event stream reads changes.
    pub(super) fn event_source(&self) -> Source {
        Source {
            index: Arc::clone(&self.index),
            store: Arc::clone(&self.store),
            stopping: Arc::clone(&self.stopping),
            keepalive: self.config.timeouts.keepalive,
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// `wanted`, or a third of the process's limit on open files if that is less: a connection is one
/// open file, may send another, and the rest of the process needs some.
fn max_connections(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    wanted.min(usize::try_from(files / 3).unwrap_or(usize::MAX)).max(1)
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that are open.
    pub open: AtomicU64,
    /// Responses by the first digit of their status, from 1 to 5.
    pub answers: [AtomicU64; 5],
    /// Bytes that were sent, heads and bodies.
    pub sent: AtomicU64,
}

impl Counters {
    pub(super) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.answers.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
