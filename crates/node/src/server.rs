//! Accepts connections, keeps the number of unfinished handshakes and of connections bounded, and
//! hands each stream to [`crate::dispatch`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_channel::Options;
use levada_core::wire::Reason;
use levada_session::{Connection, SessionError, first_record};
use levada_transport::{Tcp, return_free_memory, source_of};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::dispatch;
use crate::node::Node;
use levada_client::close_code;

/// How often it is looked whether free memory should go back to the system.
const LOOK: Duration = Duration::from_secs(5);
/// Less than this, in bytes, is kept for the next ones.
const KEPT: usize = 1 << 20;

/// How often it is logged that accepting fails.
const WARN_EVERY: Duration = Duration::from_secs(30);
/// How long accepting pauses when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(20);

/// Accepts until the node stops.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener) {
    let mut warned: Option<Instant> = None;
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
                // Under a flood it fails again and again.
                if warned.is_none_or(|at| at.elapsed() > WARN_EVERY) {
                    tracing::warn!(%error, "could not accept a connection");
                    warned = Some(Instant::now());
                }
                node.half_open.evict_oldest();
                sleep(PAUSE).await;
            }
        }
    }
}

/// Gives memory back to the system that connections held whose peers had not proved a right. Never ends.
pub(crate) async fn return_memory(node: Arc<Node>) {
    let mut most = 0;
    loop {
        sleep(LOOK).await;
        most = most.max(node.unproved.take_peak());
        let used = node.unproved.used();
        if most > KEPT && used < most / 2 {
            most = used;
            // It may keep its thread for milliseconds.
            let _ = spawn_blocking(return_free_memory).await;
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
    let source = source_of(address.ip());
    let result = tokio::select! {
        // Whoever has just finished stays, even if its place was given away at the same moment.
        biased;
        result = meet(&node, stream, source, number) => result,
        _ = evicted => return,
    };
    node.half_open.leave(number);
    node.metrics.half_open.set(node.half_open.count());
    match result {
        Ok(connection) => {
            node.metrics.handshakes(connection.resumed()).inc();
            tokio::spawn(serve_connection(node, connection, source));
        }
        Err(error) => {
            node.metrics.handshakes_failed.inc();
            tracing::debug!(%address, %error, "handshake failed");
        }
    }
}

async fn meet(
    node: &Node,
    stream: TcpStream,
    source: IpAddr,
    number: u64,
) -> Result<Connection, SessionError> {
    let stream = Tcp::new(stream).map_err(|error| SessionError::Transport(error.to_string()))?;
    let caller = first_record(Box::new(stream)).await?;
    node.half_open.speaks(number);
    caller.bounded(&node.unproved, source).accept(&node.tls, Options::default()).await
}

/// Serves the streams of one connection until it ends.
async fn serve_connection(node: Arc<Node>, connection: Connection, source: IpAddr) {
    let peer = connection.peer();
    let place = node.connections.enter(&connection, source, node.limits.connections);
    node.metrics.connections.set(node.connections.count());
    if node.is_stopping() {
        connection.close(close_code(Reason::Failed), "the node is stopping");
    } else if let Some(text) = node.shut_out(&peer).await {
        if node.notices.note(source) {
            tracing::info!(%peer, %source, %text, "turned away");
        }
        connection.close(close_code(Reason::Denied), &text);
    } else if node.has_right(&peer).await {
        place.prove(&connection);
    }
    loop {
        // Streams that may not be served yet wait in the channel, where one costs less than a task.
        let permit = place.streams.clone().acquire_owned().await;
        let Some(stream) = connection.accept().await else { break };
        let (node, connection, place) = (node.clone(), connection.clone(), place.clone());
        tokio::spawn(async move {
            let _permit = permit;
            dispatch::serve_stream(&node, &connection, &place, stream).await;
        });
    }
    // It is gone only when the goodbye has left.
    connection.flushed().await;
    node.connections.leave(&place);
    node.metrics.connections.set(node.connections.count());
    tracing::debug!(%peer, "connection ended");
}
