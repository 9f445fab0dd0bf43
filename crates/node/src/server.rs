//! Accepts connections, bounds the number of unfinished handshakes and of connections, and passes
//! each stream to [`crate::dispatch`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::Options;
use levada_contexts::{PathError, PathSession, accept_incoming, is_path};
use levada_core::source_of;
use levada_core::wire::Reason;
use levada_session::{Connection, Evicted, HalfOpenEntry, SessionError, first_record};
use levada_transport::quic::{Endpoint, QuicListener};
use levada_transport::{Counted, Tcp, Transport, return_free_memory};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::carrier::Carrier;
use crate::dispatch;
use crate::node::Node;

/// The interval of checks whether free memory should be returned to the system.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);
/// Up to this peak, in bytes, free memory is kept for further connections.
const MEMORY_KEPT: usize = 1 << 20;

/// The minimum time between two log lines about failures to accept.
const WARN_INTERVAL: Duration = Duration::from_secs(30);
/// The delay before the next attempt to accept, after a failure such as a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// Accepts connections until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.stopping() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                if node.peers.half_open.make_room(node.peers.limits.half_open).await {
                    node.metrics.peers.half_open_evicted.inc();
                }
                match Tcp::new(stream) {
                    Ok(stream) => spawn_handshake(&node, stream, address),
                    Err(error) => tracing::debug!(%address, %error, "a connection has ended"),
                }
            }
            Err(error) => {
                // Under a flood this fails many times a second.
                if warned.is_none_or(|at| at.elapsed() > WARN_INTERVAL) {
                    tracing::warn!(%error, "could not accept a connection");
                    warned = Some(Instant::now());
                }
                node.peers.half_open.evict();
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// As [`serve`], for connections over QUIC.
pub(crate) async fn serve_udp(node: Arc<Node>, (endpoint, mut listener): (Endpoint, QuicListener)) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = node.stopping() => break,
        };
        let Some((stream, address)) = accepted else { break };
        if node.peers.half_open.make_room(node.peers.limits.half_open).await {
            node.metrics.peers.half_open_evicted.inc();
        }
        spawn_handshake(&node, stream, address);
    }
    drop((listener, endpoint));
}

/// Carries sessions of others, if this node is a middlebox, until it drains or stops and they have
/// ended.
/// Dropping the future ends them.
pub(crate) async fn serve_middlebox(node: Arc<Node>, listener: TcpListener) {
    let Some(middlebox) = &node.network.middlebox else { return };
    let limited = node.clone();
    // Their clients have no right at this node, so the lines about them are limited.
    let failed = Arc::new(move |source: IpAddr, error: &PathError| {
        limited.metrics.middlebox.failed.inc();
        if limited.peers.log_limiter.should_log(source) {
            tracing::info!(%source, %error, "a session through this middlebox failed");
        }
    });
    middlebox.serve(listener, node.ceasing(), failed).await;
}

/// Returns memory of closed connections of unproved peers to the system. Does not return.
pub(crate) async fn return_memory(node: Arc<Node>) {
    let mut peak = 0;
    loop {
        sleep(MEMORY_INTERVAL).await;
        peak = peak.max(node.peers.unproved.take_peak());
        let used = node.peers.unproved.used();
        if peak > MEMORY_KEPT && used < peak / 2 {
            peak = used;
            // This may block its thread for milliseconds.
            let _ = spawn_blocking(return_free_memory).await;
        }
    }
}

fn spawn_handshake(node: &Arc<Node>, stream: impl Transport, address: SocketAddr) {
    let stream = Box::new(Counted::new(stream, &node.metrics.peers.traffic));
    let (entry, evicted) = node.peers.half_open.enter(source_of(address.ip()));
    tokio::spawn(handshake(node.clone(), stream, address, entry, evicted));
}

/// Performs one handshake, and spawns a task that serves the connection.
async fn handshake(
    node: Arc<Node>,
    stream: Box<dyn Transport>,
    address: SocketAddr,
    entry: HalfOpenEntry,
    evicted: Evicted,
) {
    let source = entry.source();
    let result = tokio::select! {
        // A handshake that finishes at the moment of its eviction counts as finished.
        biased;
        result = accept(&node, stream, &entry) => result,
        () = evicted.wait() => return,
    };
    drop(entry);
    match result {
        Ok(Accepted::Channel(connection)) => {
            node.metrics.peers.handshakes(connection.resumed()).inc();
            tokio::spawn(serve_connection(node, connection, source));
        }
        Ok(Accepted::Path(session)) => {
            node.metrics.peers.handshakes(session.resumed()).inc();
            tokio::spawn(serve_path(node, session, source));
        }
        Err(error) => {
            node.metrics.peers.handshakes_failed.inc();
            tracing::debug!(%address, %error, "handshake failed");
        }
    }
}

async fn accept(
    node: &Node,
    stream: Box<dyn Transport>,
    entry: &HalfOpenEntry,
) -> Result<Accepted, AcceptError> {
    let incoming = first_record(stream).await?.bounded(&node.peers.unproved, entry.source());
    entry.mark_active();
    if is_path(&incoming) {
        return Ok(Accepted::Path(accept_incoming(incoming, node.network.paths.clone()).await?));
    }
    Ok(Accepted::Channel(incoming.accept(&node.network.tls, Options::default()).await?))
}

/// What a handshake leads to.
enum Accepted {
    Channel(Connection),
    Path(PathSession),
}

/// Why a handshake failed.
#[derive(Debug, Error)]
enum AcceptError {
    #[error(transparent)]
    Channel(#[from] SessionError),
    #[error("through middleboxes: {0}")]
    Path(#[from] PathError),
}

/// Serves the one operation of a session with middleboxes until it ends.
async fn serve_path(node: Arc<Node>, session: PathSession, source: IpAddr) {
    let peer = session.peer();
    let carrier: Arc<dyn Carrier> = Arc::new(session.clone());
    let slot = node.peers.connections.insert(&carrier, source, node.peers.limits.connections);
    match node.evaluate_peer(&peer).await {
        Ok(proved) if !node.is_stopping() => {
            if proved {
                slot.mark_proved(&*carrier);
            }
            let over = (carrier.clone(), slot.clone());
            dispatch::serve_path(node.clone(), over, &session).await;
        }
        Ok(_) => carrier.close(Reason::Failed, "the node is stopping"),
        Err(text) => {
            if node.peers.log_limiter.should_log(source) {
                let name = node.peers.names.of(&peer);
                tracing::info!(name = name.as_deref(), %peer, %source, %text, "session denied");
            }
            carrier.close(Reason::Denied, &text);
        }
    }
    session.flushed().await;
    node.peers.connections.remove(&slot);
}

/// Serves the streams of one connection until it ends.
async fn serve_connection(node: Arc<Node>, connection: Connection, source: IpAddr) {
    let peer = connection.peer();
    let carrier: Arc<dyn Carrier> = Arc::new(connection.clone());
    let slot = node.peers.connections.insert(&carrier, source, node.peers.limits.connections);
    if node.is_stopping() {
        carrier.close(Reason::Failed, "the node is stopping");
    } else {
        match node.evaluate_peer(&peer).await {
            Ok(true) => slot.mark_proved(&*carrier),
            Ok(false) => {}
            Err(text) => {
                if node.peers.log_limiter.should_log(source) {
                    let name = node.peers.names.of(&peer);
                    let name = name.as_deref();
                    tracing::info!(name, %peer, %source, %text, "connection denied");
                }
                carrier.close(Reason::Denied, &text);
            }
        }
    }
    loop {
        // Streams without a permit wait in the channel, where one costs less memory than a task.
        let permit = slot.streams.clone().acquire_owned().await;
        let Some(stream) = connection.accept().await else { break };
        let node = node.clone();
        let over = (carrier.clone(), slot.clone());
        tokio::spawn(async move {
            let _permit = permit;
            dispatch::serve_stream(node, over, stream).await;
        });
    }
    // The slot is freed only after the close was sent.
    connection.flushed().await;
    node.peers.connections.remove(&slot);
    let name = node.peers.names.of(&peer);
    tracing::debug!(name = name.as_deref(), %peer, "connection ended");
}
