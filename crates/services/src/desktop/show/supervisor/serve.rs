//! Serves the clients of a supervisor: on its socket, and the command that started it.

use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::output::discard;
use crate::desktop::show::protocol::{ControlConnection, Request, State, Status};

/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 32;
/// The pause after a failed accept, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A request, and the channel that reports its completion.
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) done: oneshot::Sender<()>,
}

/// Sends the states to the command that started the supervisor, until it disconnects.
pub(super) async fn starter(
    mut connection: ControlConnection,
    name: String,
    states: watch::Receiver<State>,
) {
    send_states(&mut connection, name, states).await;
    discard();
}

/// Accepts connections until it is dropped.
pub(super) async fn listen(
    listener: Option<UnixListener>,
    name: String,
    states: watch::Receiver<State>,
    requests: mpsc::Sender<PendingRequest>,
) {
    let Some(listener) = listener else { return };
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let served = serve(stream, name.clone(), states.clone(), requests.clone());
                // A separate task, which survives this set: watching clients get the last state
                // after the listener is dropped.
                connections.spawn(async move {
                    let _ = tokio::spawn(served).await;
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve(
    stream: UnixStream,
    name: String,
    mut states: watch::Receiver<State>,
    requests: mpsc::Sender<PendingRequest>,
) {
    let mut connection = ControlConnection::new(stream);
    let Ok(request) = connection.expect::<Request>().await else { return };
    match request {
        Request::Watch => return send_states(&mut connection, name, states).await,
        Request::Status => {}
        request => {
            let (done, completed) = oneshot::channel();
            let pending = PendingRequest { request, done };
            if requests.send(pending).await.is_err() || completed.await.is_err() {
                return;
            }
        }
    }
    let state = states.borrow_and_update().clone();
    let _ = connection.send(&Status { name, state }).await;
}

/// Sends the status, and then every new state until the last.
async fn send_states(
    connection: &mut ControlConnection,
    name: String,
    mut states: watch::Receiver<State>,
) {
    let mut state = states.borrow_and_update().clone();
    let mut last = state.is_last();
    if connection.send(&Status { name, state }).await.is_err() {
        return;
    }
    while !last {
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            // A watching client sends nothing more, so this is the end of the connection.
            _ = connection.receive::<Request>() => return,
        }
        state = states.borrow_and_update().clone();
        last = state.is_last();
        if connection.send(&state).await.is_err() {
            return;
        }
    }
}
