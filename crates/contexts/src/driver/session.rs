//! An endpoint of a session with middleboxes.

mod shared;

use std::net::IpAddr;
use std::sync::Arc;

use levada_core::Identity;
use levada_session::parts::now;
use levada_session::{Budget, ClientConfig, Incoming, IncomingParts};
use levada_transport::Transport;

use super::PathError;
use super::task::Driver;
use crate::{ContextError, Path, PathConnection, PathEvent, PathTickets, ServerPaths, frame};
pub(super) use shared::Shared;
use shared::State;

/// A writer waits while this many bytes wait for the transport.
const MAX_PENDING: usize = 120 * 1024;
/// A write is passed on in parts of this many bytes.
const PART: usize = 64 * 1024;

/// A session with middleboxes, at the client or the server. Clones share it; when the last one is
/// dropped the transport is closed, and if [`Self::close`] was not called before, the peer gets an
/// error instead of an end.
#[derive(Clone)]
pub struct PathSession {
    handle: Arc<Handle>,
    peer: Identity,
    resumed: bool,
}

struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.abandoned = true;
        state.wake_driver();
    }
}

/// Connects over `transport`, which leads to the first middlebox of `path`. The session is bound to
/// the server's key, and can send, as soon as this returns; [`PathEvent::Ready`] comes when every
/// party is there.
///
/// # Errors
/// [`PathError`] if the transport failed, or a party is not the one that `path` names.
pub async fn connect_path(
    transport: Box<dyn Transport>,
    config: &ClientConfig,
    tickets: Arc<PathTickets>,
    path: Path,
) -> Result<PathSession, PathError> {
    let connection = PathConnection::client(config, tickets, path, now())?;
    establish(transport, Vec::new(), connection, None).await
}

/// Returns true if the peer wants a session with middleboxes.
pub fn is_path(incoming: &Incoming) -> bool {
    incoming.first_byte() == Some(frame::PATH)
}

/// Accepts a session over `transport`. Any identity may finish the handshake; the caller authorises
/// it, and calls [`PathSession::start`].
///
/// # Errors
/// As [`connect_path`].
pub async fn accept_path(
    transport: Box<dyn Transport>,
    paths: ServerPaths,
) -> Result<PathSession, PathError> {
    establish(transport, Vec::new(), PathConnection::server(paths, now()), None).await
}

/// As [`accept_path`], of a connection whose first record was received. The session's memory counts
/// against the budget of `incoming` until [`PathSession::leave_budget`].
///
/// # Errors
/// As [`connect_path`].
pub async fn accept_incoming(
    incoming: Incoming,
    paths: ServerPaths,
) -> Result<PathSession, PathError> {
    let IncomingParts { transport, received, budget } = incoming.into_parts();
    establish(transport, received, PathConnection::server(paths, now()), budget).await
}

async fn establish(
    transport: Box<dyn Transport>,
    received: Vec<u8>,
    connection: PathConnection,
    budget: Option<(Arc<Budget>, IpAddr)>,
) -> Result<PathSession, PathError> {
    let shared = Arc::new(Shared::new(connection));
    let account = budget.map(|(budget, source)| budget.register(source, &shared));
    let handle = Arc::new(Handle(shared.clone()));
    tokio::spawn(Driver::new(shared.clone(), transport, received, account));
    let bound = shared.wait(|state| state.next()).await?;
    let Some(PathEvent::Bound { peer, resumed }) = bound else { return Err(PathError::Closed) };
    Ok(PathSession { handle, peer, resumed })
}

impl PathSession {
    /// The other endpoint's identity, proved by the handshake or by the one that was resumed.
    pub fn peer(&self) -> Identity {
        self.peer
    }

    /// Whether TLS was resumed.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Removes the session from its [`Budget`], because the peer has proved a right. Repeating it
    /// does nothing.
    pub fn leave_budget(&self) {
        let mut state = self.handle.0.lock();
        state.accounted = false;
        state.wake_driver();
    }

    /// Whether the session's memory counts against a [`Budget`], because the peer has not proved a
    /// right.
    pub fn is_bounded(&self) -> bool {
        self.handle.0.lock().accounted
    }

    /// The path with the rights that both endpoints have granted; None if the session has ended.
    pub fn path(&self) -> Option<Path> {
        self.handle.0.lock().connection.path().cloned()
    }

    /// What happens next; None when the peer has sent its end. Its data is audited: nothing was
    /// left out, added or changed except by who may.
    ///
    /// # Errors
    /// The error that ended the session.
    pub async fn next(&self) -> Result<Option<PathEvent>, PathError> {
        self.handle.0.wait(State::next).await
    }

    /// Appends data to the message of a context in the current exchange. It leaves with
    /// [`Self::flush`] or [`Self::finish`], or when there is much of it. Waits while the transport
    /// is full, and before a request of a client that has 64 without an answer. If the future is
    /// dropped, a part may have been appended.
    ///
    /// # Errors
    /// The error that ended the session, or the call's own ([`ContextError::State`]).
    pub async fn write(&self, context: u8, data: &[u8]) -> Result<(), PathError> {
        for part in data.chunks(PART) {
            let write = |state: &mut State| {
                if let Some(error) = &state.ended {
                    return Some(Err(error.clone()));
                }
                let full = state.connection.pending() >= MAX_PENDING;
                if full || !state.connection.is_writable() {
                    state.wake_driver();
                    return None;
                }
                let written = state.connection.write(context, part);
                if state.connection.pending() >= PART {
                    state.wake_driver();
                }
                Some(written.map_err(Into::into))
            };
            self.handle.0.wait(write).await?;
        }
        Ok(())
    }

    fn call<T>(
        &self,
        call: impl FnOnce(&mut PathConnection) -> Result<T, ContextError>,
    ) -> Result<T, PathError> {
        self.handle.0.lock().call(call)
    }

    /// As [`Self::call`]; what it makes leaves at once.
    fn call_and_send(
        &self,
        call: impl FnOnce(&mut PathConnection) -> Result<(), ContextError>,
    ) -> Result<(), PathError> {
        let mut state = self.handle.0.lock();
        state.call(call)?;
        state.dispatch();
        state.wake_driver();
        Ok(())
    }

    /// Begins the message of a context in the current exchange without data, see
    /// [`PathConnection::begin`].
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn begin(&self, context: u8) -> Result<(), PathError> {
        self.call(|connection| connection.begin(context))
    }

    /// Ends the message of a context in the current exchange.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn end(&self, context: u8) -> Result<(), PathError> {
        self.call(|connection| connection.end(context))
    }

    /// Ends the exchange: a request, or the answer to the oldest request.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(&self) -> Result<(), PathError> {
        self.call_and_send(PathConnection::finish)
    }

    /// Sends what was written, because nothing follows for now.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn flush(&self) -> Result<(), PathError> {
        self.call_and_send(PathConnection::flush)
    }

    /// Sends a message that only the endpoints can read.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn control(&self, data: &[u8]) -> Result<(), PathError> {
        self.call_and_send(|connection| connection.control(data))
    }

    /// At a server: the verdict on the session, see [`PathConnection::start`].
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn start(&self, started: bool, realm: Option<[u8; 16]>) -> Result<(), PathError> {
        self.call_and_send(|connection| connection.start(started, realm, now()))
    }

    /// Ends the session with an error, which the peer is told.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn abort(&self, reason: &[u8]) -> Result<(), PathError> {
        self.call_and_send(|connection| connection.abort(reason))
    }

    /// Whether the session has not ended.
    pub fn is_open(&self) -> bool {
        let state = self.handle.0.lock();
        state.ended.is_none() && !state.peer_closed
    }

    /// Waits for the end of the session. The future holds no handle: the session may end while it
    /// waits.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.handle.0.clone();
        let ended = |state: &mut State| (state.ended.is_some() || state.peer_closed).then_some(());
        async move { shared.wait(ended).await }
    }

    /// Waits until the session has failed. The peer's orderly end is no failure.
    pub async fn failed(&self) {
        self.handle.0.wait(|state| state.ended.is_some().then_some(())).await;
    }

    /// Keying material for `label` that only the endpoints share (RFC 8446 section 7.5).
    ///
    /// # Errors
    /// [`PathError`] if the session has ended.
    pub fn export<const N: usize>(&self, label: &str) -> Result<[u8; N], PathError> {
        let mut out = [0; N];
        self.call(|connection| connection.export(label, &mut out))?;
        Ok(out)
    }

    /// Sends this side's end. The peer may go on.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn close(&self) -> Result<(), PathError> {
        let mut state = self.handle.0.lock();
        state.call(PathConnection::close)?;
        state.closed = true;
        state.dispatch();
        state.wake_driver();
        Ok(())
    }

    /// Waits until the transport has everything that was sent.
    pub async fn flushed(&self) {
        let written = |state: &mut State| {
            let done = state.ended.is_some() || state.connection.pending() == 0;
            done.then_some(())
        };
        self.handle.0.wait(written).await;
    }
}
