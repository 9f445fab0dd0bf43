//! Those who ask a keeper: over its socket, or as whoever started it.

use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::printed::silence;
use crate::commands::show::session::{Line, Request, State, Status};

/// How many may ask at once.
const MAX_GUESTS: usize = 32;
/// After a failure to accept: no descriptors are left, for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Something to do, and whom to tell when it is done.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) done: oneshot::Sender<()>,
}

/// Tells whoever started the keeper how it is, until he goes.
pub(super) async fn watched(mut line: Line, name: String, states: watch::Receiver<State>) {
    tell_all(&mut line, name, states).await;
    silence();
}

/// Takes everybody who comes, until it is dropped.
pub(super) async fn listen(
    listener: Option<UnixListener>,
    name: String,
    states: watch::Receiver<State>,
    asked: mpsc::Sender<Asked>,
) {
    let Some(listener) = listener else { return };
    let mut guests = JoinSet::new();
    loop {
        while guests.try_join_next().is_some() {}
        if guests.len() >= MAX_GUESTS {
            guests.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let guest = guest(stream, name.clone(), states.clone(), asked.clone());
                // Not in the set's care: whoever watches hears the end after the listening is over.
                guests.spawn(async move {
                    let _ = tokio::spawn(guest).await;
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn guest(
    stream: UnixStream,
    name: String,
    mut states: watch::Receiver<State>,
    asked: mpsc::Sender<Asked>,
) {
    let mut line = Line::new(stream);
    let Ok(request) = line.expect::<Request>().await else { return };
    match request {
        Request::Watch => return tell_all(&mut line, name, states).await,
        Request::Status => {}
        request => {
            let (done, heard) = oneshot::channel();
            if asked.send(Asked { request, done }).await.is_err() || heard.await.is_err() {
                return;
            }
        }
    }
    let state = states.borrow_and_update().clone();
    let _ = line.say(&Status { name, state }).await;
}

/// First who it is and how, then every new state, until the last.
async fn tell_all(line: &mut Line, name: String, mut states: watch::Receiver<State>) {
    let mut state = states.borrow_and_update().clone();
    let mut last = state.is_last();
    if line.say(&Status { name, state }).await.is_err() {
        return;
    }
    while !last {
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            // Whoever watches says nothing more, but that he goes.
            _ = line.hear::<Request>() => return,
        }
        state = states.borrow_and_update().clone();
        last = state.is_last();
        if line.say(&state).await.is_err() {
            return;
        }
    }
}
