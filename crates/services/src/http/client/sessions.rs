//! The sessions of a local origin: opened when a request needs one, kept for the next one, and
//! reported.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use levada_client::{ClientError, Running};
use levada_contexts::{PathSession, Right};
use levada_service::Streams;
use levada_session::{Class, ReceiveHalf, SendHalf, Stream};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::report::{GrantedMiddlebox, Report, SessionEvent};
use super::stream_session::{CLOSE_TIMEOUT, StreamSession};
use crate::http::layout::Layout;

/// Sessions with middleboxes at a time: each carries one exchange, and browsers open six
/// connections to an origin.
const SESSIONS: usize = 6;
/// Exchanges at a time over an ordinary session: a node allows 128 streams unless it is configured
/// otherwise.
const EXCHANGES: usize = 64;
/// Opens a session that is started.
pub type Open<T> =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>> + Send + Sync>;

/// How sessions with the node are opened.
pub enum Route {
    /// Through middleboxes.
    Path(Open<PathSession>),
    /// Without.
    Streams(Open<(Running, Streams)>),
}

/// The sessions of a local origin.
pub(super) struct Sessions {
    route: Route,
    report: Report,
    opened: AtomicU64,
    idle: Arc<Idle>,
    paths: Semaphore,
    shared: Mutex<Option<Arc<StreamSession>>>,
    exchanges: Semaphore,
    /// Requests that wait for a session or a stream.
    waiting: AtomicUsize,
}

/// What carries one exchange.
pub(super) enum Exchange<'a> {
    Path(UsedPath, SemaphorePermit<'a>),
    Stream(SendHalf, ReceiveHalf, SemaphorePermit<'a>),
}

/// A session with middleboxes in use.
pub(super) struct UsedPath {
    pub(super) session: PathSession,
    number: u64,
    /// It was idle between two exchanges, so its end may not have been noticed.
    pub(super) kept: bool,
}

/// The sessions with middleboxes that carry no exchange.
#[derive(Default)]
struct Idle(std::sync::Mutex<Vec<UsedPath>>);

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Vec<UsedPath>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the session `number`; returns true if it was idle.
    fn remove(&self, number: u64) -> bool {
        let mut idle = self.lock();
        let before = idle.len();
        idle.retain(|path| path.number != number);
        idle.len() < before
    }
}

/// The event of a session that another party has ended.
fn ended_by_others(number: u64) -> SessionEvent {
    let error = "the node or a middlebox has ended it".to_owned();
    SessionEvent::Ended { number, error: Some(error) }
}

/// Counts a request that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sessions {
    pub(super) fn new(route: Route, report: Report) -> Self {
        Self {
            route,
            report,
            opened: AtomicU64::new(0),
            idle: Arc::default(),
            paths: Semaphore::new(SESSIONS),
            shared: Mutex::default(),
            exchanges: Semaphore::new(EXCHANGES),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Opens a first session, which shows whether every party allows it.
    pub(super) async fn open_first(&self) -> Result<(), ClientError> {
        match &self.route {
            Route::Path(open) => {
                let path = self.opened_path(open().await?);
                self.keep(path);
            }
            Route::Streams(open) => {
                let session = self.opened_streams(open().await?);
                *self.shared.lock().await = Some(session);
            }
        }
        Ok(())
    }

    /// What carries one exchange: waits while the limit is reached.
    pub(super) async fn exchange(&self) -> Result<Exchange<'_>, ClientError> {
        match &self.route {
            Route::Path(open) => {
                let permit = self.permit(&self.paths).await?;
                let path = match self.take_idle() {
                    Some(path) => path,
                    None => self.opened_path(open().await?),
                };
                Ok(Exchange::Path(path, permit))
            }
            Route::Streams(open) => {
                let permit = self.permit(&self.exchanges).await?;
                let (send, receive) = self.stream(open).await?.split();
                Ok(Exchange::Stream(send, receive, permit))
            }
        }
    }

    async fn permit<'a>(&self, of: &'a Semaphore) -> Result<SemaphorePermit<'a>, ClientError> {
        let _waiting = Waiting::new(&self.waiting);
        of.acquire().await.map_err(|_| ClientError::Local("the local origin is closed".to_owned()))
    }

    /// Returns true while requests wait for a session or a stream.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A new session with middleboxes, in the place of one that has ended.
    pub(super) async fn new_path(&self) -> Result<UsedPath, ClientError> {
        match &self.route {
            Route::Path(open) => Ok(self.opened_path(open().await?)),
            Route::Streams(_) => Err(ClientError::Local("there are no middleboxes".to_owned())),
        }
    }

    fn number(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn opened_path(&self, session: PathSession) -> UsedPath {
        let number = self.number();
        let middleboxes = granted(&session);
        (self.report)(SessionEvent::Opened { number, resumed: session.resumed(), middleboxes });
        let path = UsedPath { session, number, kept: false };
        self.watch(&path);
        path
    }

    /// The idle session that was used last.
    fn take_idle(&self) -> Option<UsedPath> {
        let mut idle = self.idle.lock();
        while let Some(path) = idle.pop() {
            if path.session.is_open() {
                return Some(path);
            }
            self.report_ended(path.number);
        }
        None
    }

    /// Keeps a session for the next exchange.
    pub(super) fn keep(&self, path: UsedPath) {
        let mut idle = self.idle.lock();
        if path.session.is_open() {
            idle.push(UsedPath { kept: true, ..path });
        } else {
            self.report_ended(path.number);
        }
    }

    /// Reports the end of a session as soon as it ends while it is idle. Otherwise its exchange
    /// reports it.
    fn watch(&self, path: &UsedPath) {
        let closed = path.session.closed();
        let number = path.number;
        let idle = self.idle.clone();
        let report = self.report.clone();
        tokio::spawn(async move {
            closed.await;
            if idle.remove(number) {
                report(ended_by_others(number));
            }
        });
    }

    fn report_ended(&self, number: u64) {
        (self.report)(ended_by_others(number));
    }

    /// Ends a session after a failed exchange.
    pub(super) fn failed(&self, path: UsedPath, error: String) {
        // The other parties must not wait for more; a session that has failed needs no abort.
        let _ = path.session.abort(b"the client has given up an exchange");
        (self.report)(SessionEvent::Ended { number: path.number, error: Some(error) });
    }

    /// A new stream of the session, which is opened again if it has ended.
    async fn stream(&self, open: &Open<(Running, Streams)>) -> Result<Stream, ClientError> {
        let session = self.shared_session(open).await?;
        match session.opener.open_or_wait(Class::Bulk).await {
            Ok(stream) => Ok(stream),
            Err(_) if !session.is_open() => {
                let session = self.shared_session(open).await?;
                session.opener.open_or_wait(Class::Bulk).await.map_err(open_error)
            }
            Err(error) => Err(open_error(error)),
        }
    }

    /// The one session. While it is opened, other exchanges wait here for it.
    async fn shared_session(
        &self,
        open: &Open<(Running, Streams)>,
    ) -> Result<Arc<StreamSession>, ClientError> {
        let mut shared = self.shared.lock().await;
        if let Some(session) = shared.as_ref().filter(|session| session.is_open()) {
            return Ok(session.clone());
        }
        let session = self.opened_streams(open().await?);
        *shared = Some(session.clone());
        Ok(session)
    }

    fn opened_streams(&self, (running, streams): (Running, Streams)) -> Arc<StreamSession> {
        let number = self.number();
        let resumed = running.connection.resumed();
        (self.report)(SessionEvent::Opened { number, resumed, middleboxes: Vec::new() });
        Arc::new(StreamSession::new(number, running, streams, self.report.clone()))
    }

    /// Ends all sessions that are not in use.
    pub(super) async fn close(&self) {
        while let Some(UsedPath { session, number, .. }) = self.take_idle() {
            if session.close().is_ok() {
                let _ = timeout(CLOSE_TIMEOUT, session.flushed()).await;
            }
            (self.report)(SessionEvent::Ended { number, error: None });
        }
        if let Some(session) = self.shared.lock().await.take() {
            session.close().await;
        }
    }
}

fn open_error(error: levada_service::streams::OpenError) -> ClientError {
    ClientError::Unreachable(error.to_string())
}

/// What each middlebox of a session was granted.
fn granted(session: &PathSession) -> Vec<GrantedMiddlebox> {
    let Some(path) = session.path() else { return Vec::new() };
    let names = Layout::of(&path).map(Layout::names).unwrap_or_default();
    let of_hop = |(hop, middlebox): (u8, &levada_contexts::Hop)| {
        let rights = (1u8..).zip(&names).map(|(number, name)| (*name, path.right(number, hop)));
        let grants = rights.filter(|(_, right)| *right != Right::None).collect();
        GrantedMiddlebox { identity: middlebox.party.identity, grants }
    };
    (1u8..).zip(&path.hops).map(of_hop).collect()
}
