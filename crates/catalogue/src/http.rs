//! The catalogue over HTTP/1.1: read-only.
//!
//! [`answer`](Site::answer) is a function of the index and a request. A connection (`connection.rs`) parses requests out of
//! what has come, answers them in order and writes many answers at once; what needs the store is done on another thread.
//! `/.well-known/` is the original's layer (`compat.rs`), `/v1` ours (`v1.rs`), `/` a page for people (`page.rs`).
//!
//! Only POST under `/.well-known/` has a body (`incoming.rs`), which is read to its end. Where one request ends and the next
//! begins is never in doubt: any other that claims a body is refused and its connection closed.

mod cache;
mod compat;
mod connection;
mod content;
mod deadline;
mod ending;
mod hosts;
mod incoming;
mod json;
mod openapi;
mod outgoing;
mod page;
mod places;
mod problem;
mod query;
mod range;
mod request;
mod response;
mod route;
mod serve;
mod socket;
mod tag;
#[cfg(test)]
mod tests;
mod tls;
mod v1;
mod verify;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use levada_core::Digest;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::index::Index;
use crate::store::Store;
use cache::Cache;
use places::Places;
use verify::Verifier;

pub use hosts::{Hosts, HostsError};
pub use incoming::MAX_BODY;
pub use openapi::document as openapi_document;
pub use request::{MAX_HEAD, MAX_HEADERS, Method, Parsed, Refusal, Request, parse};
pub use response::{Body, Response};
pub use route::{Job, Reply};
pub use serve::serve;
pub use tls::{Tls, TlsError};

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For a request, its body included, from its first byte; for the first one from the connection on.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Within this time a client must take [`MIN_TAKEN`] bytes, or all there is.
    pub stall: Duration,
    /// For an answer that needs the store, its queue included.
    pub store: Duration,
    /// Between two comments that keep a watch alive.
    pub comment: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(30),
            store: Duration::from_secs(30),
            comment: Duration::from_secs(15),
        }
    }
}

/// What a client must take within [`Times::stall`], in bytes: whoever is slower is cut off.
pub const MIN_TAKEN: u64 = 32 * 1024;

/// How the catalogue is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which values of `Host` are accepted.
    pub hosts: Hosts,
    /// The most connections, and at most a third of the files that the process may open. Where they are short, one
    /// that rests makes room.
    pub connections: usize,
    /// The most connections of one source, an IPv4 address or the /64 of an IPv6 address; none for half of all.
    pub per_source: Option<usize>,
    /// Whether the catalogue is served, or only [`Extra`].
    pub catalogue: bool,
    /// What HTTP is served with, if it is served with TLS.
    pub tls: Option<Tls>,
    /// The most watches at once, and at most half of the connections, but at least one; further ones are told to come
    /// again.
    pub watches: usize,
    /// How many bytes of what is made of packages are kept.
    pub cache: u64,
    /// How long what may take.
    pub times: Times,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            connections: 8192,
            per_source: None,
            catalogue: true,
            tls: None,
            watches: 1024,
            cache: 256 * 1024 * 1024,
            times: Times::default(),
        }
    }
}

/// Paths that the node answers itself, such as `/metrics`. They are answered also where all connections are taken.
pub trait Extra: Send + Sync {
    /// The answer to GET of `path`; none if it is not one of these. Must not block.
    fn answer(&self, path: &str) -> Option<Response>;
}

/// No more than these at once ask the store.
const STORE_CALLS: usize = 64;
/// No more than these at once are read of the bodies of requests that are long, so that all of them take 16 MiB.
const LONG_BODIES: usize = 256;
/// No more than these at once go through all objects of a type for a list with conditions.
const LISTS: usize = 2;
/// No more than these at once make a body of a package: that may take some hundred megabytes while it lasts.
const WORKSHOPS: usize = 4;
/// The least room for bodies that are made of packages, in bytes: two of the longest.
const MIN_ROOM: u64 = 256 * 1024 * 1024;

/// What is served.
pub struct Site {
    index: Arc<Index>,
    store: Arc<dyn Store>,
    extra: Option<Box<dyn Extra>>,
    config: Config,
    places: Arc<Places>,
    tls: ArcSwapOption<Tls>,
    cache: Cache,
    verifier: Verifier,
    /// For bodies that are made here: those that are kept, and as much again for those that are only on their way.
    room: Arc<Semaphore>,
    workshops: [Mutex<()>; WORKSHOPS],
    calls: Arc<Semaphore>,
    long_bodies: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    counters: Counters,
    openapi: OnceLock<Bytes>,
    /// How many connections have something to answer.
    busy: AtomicUsize,
    stopping: AtomicBool,
}

impl Site {
    /// A site over `index`, which follows `store`.
    pub fn new(
        index: Arc<Index>,
        store: Arc<dyn Store>,
        mut config: Config,
        extra: Option<Box<dyn Extra>>,
    ) -> Arc<Self> {
        config.connections = places(config.connections);
        let share = config.per_source.unwrap_or((config.connections / 2).max(1));
        let tls = config.tls.take();
        // Watches stay: they must not take the place of all that only want an answer.
        config.watches = config.watches.min((config.connections / 2).max(1));
        Arc::new(Self {
            index,
            store,
            extra,
            places: Places::new(config.connections, share),
            tls: ArcSwapOption::new(tls.map(Arc::new)),
            cache: Cache::new(config.cache),
            verifier: Verifier::start(),
            room: content::room(config.cache.saturating_mul(2).max(MIN_ROOM)),
            workshops: Default::default(),
            calls: Arc::new(Semaphore::new(STORE_CALLS)),
            long_bodies: Arc::new(Semaphore::new(LONG_BODIES)),
            lists: Arc::new(Semaphore::new(LISTS)),
            watches: Arc::new(Semaphore::new(config.watches)),
            config,
            counters: Counters::default(),
            openapi: OnceLock::new(),
            busy: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The index that is served.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Keeps the index up to date with a store that others write to, too: looks every `every`. Never ends.
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

    /// Where something may be made of a package. Whoever wants the same waits here, and finds it made.
    fn workshop(&self, digest: &Digest) -> MutexGuard<'_, ()> {
        let place = &self.workshops[usize::from(digest[0]) % WORKSHOPS];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves new connections with another certificate. It does nothing for a site without TLS.
    pub fn replace_tls(&self, tls: Tls) {
        if self.tls.load().is_some() {
            self.tls.store(Some(Arc::new(tls)));
        }
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.load().as_ref().map(|tls| tls.acceptor())
    }

    /// How many connections were ended to make room for others.
    pub fn evicted(&self) -> u64 {
        self.places.evicted()
    }

    /// Whether a request is answered by [`Extra`]: that has places reserved.
    fn is_extra(&self, request: &Request<'_>) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.answer(request.path).is_some())
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// How many connections there may be. Each is an open file, and may be sent another one: some are left for the rest of
/// the process.
fn places(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    wanted.min(usize::try_from(files / 3).unwrap_or(usize::MAX)).max(1)
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that are open.
    pub open: AtomicU64,
    /// Answers by the first digit of their status, from 1 to 5.
    pub answers: [AtomicU64; 5],
    /// Bytes that were sent, heads and bodies.
    pub sent: AtomicU64,
}

impl Counters {
    fn answered(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.answers.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}
