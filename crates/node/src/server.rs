//! Accepts connections, keeps the number of unfinished handshakes and of connections bounded, and
//! hands each stream to [`crate::dispatch`].

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_channel::Options;
use levada_core::Identity;
use levada_core::wire::Reason;
use levada_link::{prepare_tcp, source_of};
use levada_session::{Close, Connection};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::dispatch;
use crate::running::Node;

/// How long accepting pauses when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(20);

/// Accepts until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.stopping() => return,
        };
        match accepted {
            Ok((stream, address)) => begin(&node, stream, address),
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                node.half_open.evict_oldest();
                sleep(PAUSE).await;
            }
        }
    }
}

fn begin(node: &Arc<Node>, stream: TcpStream, address: SocketAddr) {
    let number = node.half_open.number();
    let task = tokio::spawn(handshake(node.clone(), stream, address, number));
    if node.half_open.enter(number, task.abort_handle(), node.limits.half_open) {
        node.metrics.half_open_evicted.inc();
    }
    node.metrics.half_open.set(node.half_open.count());
}

/// One handshake; the connection goes on in a task of its own, so that this one can be ended.
async fn handshake(node: Arc<Node>, stream: TcpStream, address: SocketAddr, number: u64) {
    let result = match prepare_tcp(stream) {
        Ok(stream) => {
            levada_session::accept(Box::new(stream), &node.tls, Options::default()).await
        }
        Err(error) => Err(levada_session::SessionError::Link(error.to_string())),
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
    node.connections.leave(place.number);
    node.metrics.connections.set(node.connections.count());
    tracing::debug!(%peer, "connection ended");
}

/// The code of a close for this reason: below [`Close::APPLICATION`] are the channel's own.
pub(crate) fn close_code(reason: Reason) -> u64 {
    Close::APPLICATION + reason as u64
}

/// Handshakes that have not finished, oldest first.
#[derive(Default)]
pub(crate) struct HalfOpen(Mutex<HalfOpenTable>);

#[derive(Default)]
struct HalfOpenTable {
    next: u64,
    tasks: VecDeque<(u64, AbortHandle)>,
}

impl HalfOpen {
    fn number(&self) -> u64 {
        let mut table = lock(&self.0);
        table.next += 1;
        table.next
    }

    /// Enters a handshake; when there are too many, the oldest goes (true): one that has taken long is
    /// less likely to be honest than one that has just come.
    fn enter(&self, number: u64, task: AbortHandle, limit: usize) -> bool {
        let mut table = lock(&self.0);
        table.tasks.push_back((number, task));
        if table.tasks.len() > limit {
            // One that ended before it was entered could not leave by itself.
            table.tasks.retain(|(_, task)| !task.is_finished());
        }
        let full = table.tasks.len() > limit;
        if full && let Some((_, oldest)) = table.tasks.pop_front() {
            oldest.abort();
        }
        full
    }

    fn leave(&self, number: u64) {
        lock(&self.0).tasks.retain(|(other, _)| *other != number);
    }

    fn evict_oldest(&self) {
        if let Some((_, oldest)) = lock(&self.0).tasks.pop_front() {
            oldest.abort();
        }
    }

    fn count(&self) -> i64 {
        i64::try_from(lock(&self.0).tasks.len()).unwrap_or(i64::MAX)
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
