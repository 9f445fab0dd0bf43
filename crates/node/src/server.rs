//! Accepts connections, keeps the number of unfinished handshakes and of connections bounded, and
//! hands each stream to [`crate::dispatch`].

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use levada_channel::Options;
use levada_core::Identity;
use levada_core::wire::Reason;
use levada_link::{prepare_tcp, source_of};
use levada_session::{Close, Connection, SessionError, first_record};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::dispatch;
use crate::running::Node;

/// How long accepting pauses when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(20);

/// How long every handshake may keep its place, however many others wait for one: they wait in the
/// kernel's queue meanwhile, where they cost next to nothing.
const STAY: Duration = Duration::from_millis(50);

/// Accepts until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.stopping() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                if node.half_open.make_room(node.limits.half_open).await {
                    node.metrics.half_open_evicted.inc();
                }
                begin(&node, stream, address);
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                node.half_open.evict_oldest();
                sleep(PAUSE).await;
            }
        }
    }
}

fn begin(node: &Arc<Node>, stream: TcpStream, address: SocketAddr) {
    let (number, evicted) = node.half_open.enter();
    tokio::spawn(handshake(node.clone(), stream, address, number, evicted));
    node.metrics.half_open.set(node.half_open.count());
}

/// One handshake; the connection goes on in a task of its own.
async fn handshake(
    node: Arc<Node>,
    stream: TcpStream,
    address: SocketAddr,
    number: u64,
    evicted: oneshot::Receiver<()>,
) {
    let result = tokio::select! {
        // Whoever has just finished stays, even if its place was given away at the same moment.
        biased;
        result = meet(&node, stream, number) => result,
        _ = evicted => return,
    };
    node.half_open.leave(number);
    node.metrics.half_open.set(node.half_open.count());
    match result {
        Ok(connection) => {
            node.metrics.handshakes.inc();
            tokio::spawn(serve_connection(node, connection, source_of(address.ip())));
        }
        Err(error) => {
            node.metrics.handshakes_failed.inc();
            tracing::debug!(%address, %error, "handshake failed");
        }
    }
}

async fn meet(node: &Node, stream: TcpStream, number: u64) -> Result<Connection, SessionError> {
    let stream = prepare_tcp(stream).map_err(|error| SessionError::Link(error.to_string()))?;
    let caller = first_record(Box::new(stream)).await?;
    node.half_open.speaks(number);
    caller.accept(&node.tls, Options::default()).await
}

/// Serves the streams of one connection until it ends. Whoever is blocked gets no further than this,
/// on a full handshake as on a resumed one.
async fn serve_connection(node: Arc<Node>, connection: Connection, source: IpAddr) {
    let peer = connection.peer();
    if let Some(text) = node.shut_out(&peer).await {
        tracing::info!(%peer, %text, "turned away");
        connection.close(close_code(Reason::Denied), &text);
        return;
    }
    let place = node.connections.enter(&connection, node.limits.connections);
    node.metrics.connections.set(node.connections.count());
    while let Some(stream) = connection.accept().await {
        let (node, connection, busy) = (node.clone(), connection.clone(), place.busy.clone());
        tokio::spawn(async move {
            busy.fetch_add(1, Ordering::Relaxed);
            dispatch::serve_stream(&node, &connection, source, stream).await;
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // It is gone only when the goodbye has left.
    connection.flushed().await;
    node.connections.leave(place.number);
    node.metrics.connections.set(node.connections.count());
    tracing::debug!(%peer, "connection ended");
}

/// The code of a close for this reason: below [`Close::APPLICATION`] are the channel's own.
pub(crate) fn close_code(reason: Reason) -> u64 {
    Close::APPLICATION + reason as u64
}

/// Handshakes that have not finished.
#[derive(Default)]
pub(crate) struct HalfOpen(Mutex<HalfOpenTable>);

/// By number, so the oldest is the first.
#[derive(Default)]
struct HalfOpenTable {
    next: u64,
    /// Those that have not sent a whole record: they cost us little, and whoever sends them even less.
    silent: BTreeMap<u64, HalfOpenPlace>,
    /// Those that are further.
    speaking: BTreeMap<u64, HalfOpenPlace>,
}

struct HalfOpenPlace {
    since: Instant,
    /// Dropped to end the handshake.
    _end: oneshot::Sender<()>,
}

impl HalfOpenTable {
    /// The oldest that has said nothing, or the oldest of all: one that has taken long is less likely
    /// to be honest than one that has just come, and an honest one speaks at once.
    fn oldest(&mut self) -> Option<OccupiedEntry<'_, u64, HalfOpenPlace>> {
        self.silent.first_entry().or_else(|| self.speaking.first_entry())
    }

    fn len(&self) -> usize {
        self.silent.len() + self.speaking.len()
    }

    /// Ends the oldest handshake if there are `limit`; true if one was ended. An error says how long
    /// it may still keep its place.
    fn make_room(&mut self, limit: usize) -> Result<bool, Duration> {
        if self.len() < limit {
            return Ok(false);
        }
        let Some(oldest) = self.oldest() else { return Ok(false) };
        match STAY.checked_sub(oldest.get().since.elapsed()) {
            Some(left) if !left.is_zero() => Err(left),
            _ => {
                oldest.remove();
                Ok(true)
            }
        }
    }
}

impl HalfOpen {
    /// Waits for a place; true if another handshake had to be ended for it.
    async fn make_room(&self, limit: usize) -> bool {
        loop {
            let outcome = lock(&self.0).make_room(limit);
            match outcome {
                Ok(ended) => return ended,
                Err(left) => sleep(left).await,
            }
        }
    }

    fn enter(&self) -> (u64, oneshot::Receiver<()>) {
        let (end, evicted) = oneshot::channel();
        let mut table = lock(&self.0);
        table.next += 1;
        let number = table.next;
        table.silent.insert(number, HalfOpenPlace { since: Instant::now(), _end: end });
        (number, evicted)
    }

    fn speaks(&self, number: u64) {
        let mut table = lock(&self.0);
        if let Some(place) = table.silent.remove(&number) {
            table.speaking.insert(number, place);
        }
    }

    fn leave(&self, number: u64) {
        let mut table = lock(&self.0);
        table.silent.remove(&number);
        table.speaking.remove(&number);
    }

    fn evict_oldest(&self) {
        lock(&self.0).oldest().map(OccupiedEntry::remove);
    }

    fn count(&self) -> i64 {
        i64::try_from(lock(&self.0).len()).unwrap_or(i64::MAX)
    }
}

/// Connections that have finished their handshake.
#[derive(Default)]
pub(crate) struct Connections(Mutex<ConnectionTable>);

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    open: BTreeMap<u64, (Connection, Arc<AtomicUsize>)>,
}

struct Place {
    number: u64,
    /// Operations and sessions that run on the connection.
    busy: Arc<AtomicUsize>,
}

impl Connections {
    /// Enters a connection; when there are too many, the oldest that does nothing is closed.
    fn enter(&self, connection: &Connection, limit: usize) -> Place {
        let mut table = lock(&self.0);
        table.next += 1;
        let number = table.next;
        let busy = Arc::new(AtomicUsize::new(0));
        table.open.insert(number, (connection.clone(), busy.clone()));
        if table.open.len() > limit {
            let idle = table.open.iter().find(|(_, (_, busy))| busy.load(Ordering::Relaxed) == 0);
            if let Some(oldest) = idle.map(|(number, _)| *number)
                && let Some((connection, _)) = table.open.remove(&oldest)
            {
                connection.close(close_code(Reason::Busy), "the node has too many connections");
            }
        }
        Place { number, busy }
    }

    fn leave(&self, number: u64) {
        lock(&self.0).open.remove(&number);
    }

    /// Closes the connections of `peer`, or all.
    pub(crate) fn close(&self, peer: Option<&Identity>, reason: Reason, text: &str) {
        for (connection, _) in lock(&self.0).open.values() {
            if peer.is_none_or(|peer| *peer == connection.peer()) {
                connection.close(close_code(reason), text);
            }
        }
    }

    pub(crate) fn count(&self) -> i64 {
        i64::try_from(lock(&self.0).open.len()).unwrap_or(i64::MAX)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
